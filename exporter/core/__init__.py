"""Basic parts that depend on neither manifests nor ONNX."""

from importlib import import_module
from typing import Any

#: The plugins by the key, the option or the event that needs one. The way from manifest to gate
#: reaches `exporter/plugins/` only by this table and by that of the commands.
_PLUGINS = {
    "call_failure": "diagnosis.call_failure",
    "changed": "changed_cells",
    "custom_ops": "custom_ops",
    "dask": "cluster.dask_engine",
    "diagnosis": "diagnosis.explanation",
    "environment": "installation",
    "evidence": "verify.evidence",
    "files": "data_files",
    "generate": "generation",
    "github": "github",
    "inputs_from": "inputs_from",
    "landlock": "landlock",
    "live": "live_progress",
    "measure": "measurement",
    "missing_kernel": "diagnosis.missing_kernel",
    "noop": "noop_snapshot",
    "pages": "model_pages",
    "parameters": "weight_interface",
    "passes": "passes.passes",
    "reports": "report_files",
    "review": "review.review",
    "rollout": "rollout",
    "shard": "shard_merge",
    "speedups": "export_speedups",
    "steps": "quantization_steps",
    "store": "store.project_store",
    "suffix": "toolchains.toolchain_export",
    "tracer": "access_tracer",
    "watch": "watch",
    "weights": "mapped_weights",
    "weights_file": "weight_files",
}


def import_plugin(name: str) -> Any:
    return import_module(f"exporter.plugins.{_PLUGINS[name]}")
