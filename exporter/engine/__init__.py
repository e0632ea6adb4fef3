"""Jobs in, outcomes out: local processes today, other places behind the same protocol."""

from exporter.engine.environment import worker_environment
from exporter.engine.local import LocalEngine
from exporter.engine.protocol import Ended, Engine, Listener, Outcome, Task
from exporter.engine.starter import Spawner, Starter
from exporter.engine.warm import Warm

__all__ = [
    "Ended",
    "Engine",
    "Listener",
    "LocalEngine",
    "Outcome",
    "Spawner",
    "Starter",
    "Task",
    "Warm",
    "worker_environment",
]
