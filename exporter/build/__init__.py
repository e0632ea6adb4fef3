"""A plan in, records and files in the build folder out."""

from exporter.run.decide import Decisions, Wish, decide
from exporter.run.folders import BuildFolder, Stored
from exporter.run.garbage import Garbage, find_garbage, remove
from exporter.run.orchestrate import run_plan
from exporter.run.requirements import require_packages
from exporter.run.results import Judge, Results, collect, still_valid
from exporter.run.supervisor import Watcher

__all__ = [
    "BuildFolder",
    "Decisions",
    "Garbage",
    "Judge",
    "Results",
    "Stored",
    "Watcher",
    "Wish",
    "collect",
    "decide",
    "find_garbage",
    "remove",
    "require_packages",
    "run_plan",
    "still_valid",
]
