"""Build a plan: decide, restore, schedule, execute and collect.

Input: a plan. Output: records and files in the build folder.
"""

from exporter.build.decisions.build_results import (
    RecordValidator,
    Results,
    collect_results,
    drop_changed_files,
    filter_valid_results,
)
from exporter.build.decisions.cell_decisions import BuildOptions, Decisions, decide
from exporter.build.execute.supervisor import BuildObserver
from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.garbage import Garbage, find_garbage, remove_garbage
from exporter.build.folder.stored_records import StoredRecords
from exporter.build.pipeline import run_plan
from exporter.build.requirements import require_packages, require_sandbox
from exporter.build.toolchain_export import require_toolchain

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
    "require_sandbox",
    "require_toolchain",
    "run_plan",
]
