"""The way from a manifest to the gate does not import optional things, with these exceptions.

`benchmarks/house.py` has the groups of optional modules. A statement counts if it is lazy, too.
"""

from __future__ import annotations

from benchmarks.house import find_group, list_crossings, list_modules

#: Optional module -> the modules on the way that import it. The list only becomes shorter.
EXCEPTIONS = {
    "api.evidence": "api.gate_run api.report_pages",
    "api.project_store": "api.export_run",
    "api.watch": "cli.commands.export",
    "cache.noop_snapshot": "api api.export_run cli.commands.export cli.output.tables "
    "cli.output.terminal pipeline.build worker.job_output",
    "cache.store": "api.export_run cli.output.tables pipeline.build pipeline.decisions",
    "checks.comparison.comparators": "checks.comparison.compare_outputs",
    "checks.metric_checks": "checks worker.reference.reference_run",
    "cli.output.github": "cli.commands.gate cli.entry_point",
    "environments": "manifest.project_settings manifest.resolved.project "
    "pipeline.build pipeline.decisions "
    "worker.dependencies.source_files",
    "gate.contract_changes": "api.gate_run gate.baseline_comparison",
    "gate.upgrade_comparison": "report.pages.page_files report.rows.gate_rows",
    "manifest.cell_settings": "cli.commands.inspection",
    "pipeline.cluster.dask_engine": "api.export_run",
    "pipeline.environments": "api.export_run cli.commands.inspection pipeline.build "
    "pipeline.decisions",
    "pipeline.shard_merge": "cli.commands.report",
    "processes.landlock": "worker.__main__",
    "report.pages.browser_data": "report.pages.page_files",
    "report.report_files": "api.report_pages",
    "runtimes.drivers.load_figures": "runtimes.drivers.server runtimes.runtime_registry "
    "runtimes.session",
    "worker.dependencies.access_tracer": "worker.dependencies.opened_files",
    "worker.diagnose.explanation": "worker.job_runner",
    "worker.export.file_samples": "worker.job_runner",
    "worker.model.components": "worker.export.attempts worker.model.call_objects "
    "worker.model.source_loader",
    "worker.model.mapped_weights": "worker.model.source_loader worker.reference.eager_run",
    "worker.passes": "worker.job_runner",
    "worker.reference.review": "worker.job_runner",
    "worker.reference.rollout": "worker.job_runner",
    "worker.torch_private.draft_export": "worker.export.attempts",
    "worker.torch_private.export_speedups": "worker.export.convert worker.fork_server",
    "worker.verify.measurement": "worker.job_runner",
}


def test_the_way_imports_no_other_optional_module() -> None:
    accepted = {
        (module, name) for name, modules in EXCEPTIONS.items() for module in modules.split()
    }
    crossings = list_crossings()
    assert not crossings - accepted, "call it by a seam, or from a module above the way"
    assert not accepted - crossings, "remove the exceptions that are not needed any more"


def test_optional_modules_are_found() -> None:
    groups = {find_group(module) for module in list_modules()}
    assert {"store", "cluster", "", "repro"} <= groups
    assert {find_group(name) for name in ("manifest.loader", "pipeline.build", "gate")} == {""}
