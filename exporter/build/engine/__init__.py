"""Jobs in, outcomes out: local processes today, other places behind the same protocol."""

from exporter.engine.local import LocalEngine
from exporter.engine.protocol import Ended, Engine, Listener, Outcome, Task

__all__ = [
    "Ended",
    "Engine",
    "Listener",
    "LocalEngine",
    "Outcome",
    "Task",
]
