"""Build a plan: decide, restore, schedule, execute and collect."""

from exporter.pipeline.build import run_plan
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.pipeline.decisions import (
    BuildOptions,
    Decisions,
    RecordValidator,
    Results,
    collect_results,
    decide,
    drop_changed_files,
    filter_valid_results,
)
from exporter.pipeline.environments import require_packages, require_toolchain
from exporter.pipeline.maintenance import Garbage, find_garbage, remove_garbage
from exporter.pipeline.supervisor import BuildObserver

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
