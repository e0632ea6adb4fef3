"""Build a plan: decide, restore, schedule, execute and collect."""

from exporter.pipeline.build import run_plan
from exporter.pipeline.decisions.build_results import (
    RecordValidator,
    Results,
    collect_results,
    drop_changed_files,
    filter_valid_results,
)
from exporter.pipeline.decisions.cell_decisions import BuildOptions, Decisions, decide
from exporter.pipeline.environments import require_packages
from exporter.pipeline.execute.supervisor import BuildObserver
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.pipeline.folder.maintenance import Garbage, find_garbage, remove_garbage
from exporter.pipeline.folder.stored_records import StoredRecords
from exporter.pipeline.toolchain_export import require_toolchain

__all__ = [
    "BuildFolder",
    "BuildObserver",
    "BuildOptions",
    "Decisions",
    "Garbage",
    "RecordValidator",
    "Results",
    "StoredRecords",
    "collect_results",
    "decide",
    "drop_changed_files",
    "filter_valid_results",
    "find_garbage",
    "remove_garbage",
    "require_packages",
    "require_toolchain",
    "run_plan",
]
