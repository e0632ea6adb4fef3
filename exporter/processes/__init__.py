"""Processes of their own for what may fail: what they may see, and how they are started.

Nothing of the project is loaded here: a worker can be on its way before its job is known.
"""

from exporter.processes.environment import worker_environment
from exporter.processes.starter import Spawner, Starter
from exporter.processes.warm import Warm

__all__ = ["Spawner", "Starter", "Warm", "worker_environment"]
