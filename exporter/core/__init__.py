"""Basic parts that depend on neither manifests nor ONNX."""

from importlib import import_module
from typing import Any

#: The plugins by the key, the option or the event that needs one. The way from manifest to gate
#: reaches `exporter/plugins/` only by this table and by that of the commands.
_PLUGINS = {
    "against": "revision_gate.revision_comparison",
    "artifact": "rules.finished_sources",
    "branches": "model_branches",
    "call": "rules.call_rules",
    "call_failure": "diagnosis.call_failure",
    "cases": "rules.input_cases",
    "changed": "changed_cells",
    "compare": "rules.output_rules",
    "comparator": "comparators",
    "custom_ops": "custom_ops",
    "custom_op_rules": "rules.custom_op_rules",
    "dask": "cluster.dask_engine",
    "derived_axes": "rules.derived_axes",
    "deprecated": "rules.invalid_tables",
    "devices": "rules.project_devices",
    "diagnosis": "diagnosis.explanation",
    "draft": "diagnosis.model_lines",
    "environment": "installation",
    "error": "diagnosis.model_lines",
    "evidence": "verify.evidence",
    "expect": "foreseen_failures",
    "files": "data_files",
    "float64": "large_float64",
    "forward": "rules.python_code",
    "gate": "rules.gate_settings",
    "generate": "generation",
    "github": "github",
    "inputs_from": "inputs_from",
    "invalid_entry": "rules.invalid_entries",
    "invalid_table": "rules.invalid_tables",
    "landlock": "landlock",
    "live": "live_progress",
    "load_failure": "diagnosis.load_failure",
    "measure": "measurement",
    "metric": "metric",
    "noop": "noop_snapshot",
    "options": "rules.option_rules",
    "overrides": "rules.option_rules",
    "pages": "model_pages",
    "parameters": "weight_interface",
    "passes": "passes",
    "recheck": "recheck",
    "red": "failure_clusters",
    "regions": "operator_regions",
    "repeat": "rules.repeated_tables",
    "reports": "report_files",
    "review": "review.review",
    "program": "captured_models",
    "rollout": "rollout",
    "runtime_process": "runtime_process",
    "saved_source": "rules.finished_sources",
    "shard": "shard_merge",
    "speedups": "export_speedups",
    "steps": "quantization_steps",
    "store": "store.project_store",
    "suffix": "toolchains.toolchain_export",
    "syntax_error": "rules.toml_errors",
    "thorough": "thorough_sets",
    "tracer": "access_tracer",
    "watch": "watch",
    "weights": "mapped_weights",
    "weights_file": "weight_files",
}


def import_plugin(name: str, part: str = "") -> Any:
    """Return the module of a plugin, or a part of its package.

    The parts of a key: `declaration` reads its value, `check` proves it without torch, `work` is
    its part of a job, with torch.
    """
    return import_module(".".join(filter(None, ("exporter.plugins", _PLUGINS[name], part))))
