"""Jobs in, outcomes out: local processes today, other places behind the same protocol."""

from exporter.build.engine.local_engine import LocalEngine
from exporter.build.engine.protocol import (
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
