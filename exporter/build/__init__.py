"""A plan in, records and files in the build folder out."""

from exporter.build.decisions.decide import BuildOptions, Decisions, decide
from exporter.build.decisions.results import (
    RecordValidator,
    Results,
    collect,
    still_valid,
)
from exporter.build.execute.supervisor import BuildObserver
from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.garbage import Garbage, find_garbage, remove
from exporter.build.folder.stored_records import Stored
from exporter.build.pipeline import run_plan
from exporter.build.requirements import require_packages

__all__ = [
    "BuildFolder",
    "BuildObserver",
    "BuildOptions",
    "Decisions",
    "Garbage",
    "RecordValidator",
    "Results",
    "Stored",
    "collect",
    "decide",
    "find_garbage",
    "remove",
    "require_packages",
    "run_plan",
    "still_valid",
]
