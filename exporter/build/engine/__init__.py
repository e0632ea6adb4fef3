"""Jobs in, outcomes out: local processes today, other places behind the same protocol."""

from exporter.build.engine.local import LocalEngine
from exporter.build.engine.protocol import (
    Ended,
    Engine,
    Listener,
    Outcome,
    Task,
)

__all__ = [
    "Ended",
    "Engine",
    "Listener",
    "LocalEngine",
    "Outcome",
    "Task",
]
