"""Run jobs in worker processes."""

from exporter.pipeline.engine.local_engine import LocalEngine
from exporter.pipeline.engine.protocol import (
    Engine,
    ExitKind,
    JobEvents,
    JobResult,
    Task,
)

__all__ = [
    "Engine",
    "ExitKind",
    "JobEvents",
    "JobResult",
    "LocalEngine",
    "Task",
]
