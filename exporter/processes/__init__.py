"""Processes of their own for what may fail: what they may see, and how they are started.

Nothing of the project is loaded here: a worker can be on its way before its job is known.
"""

from exporter.processes.environment import worker_environment
from exporter.processes.fork_server import Warm
from exporter.processes.spawn import Spawner, Starter

__all__ = ["Spawner", "Starter", "Warm", "worker_environment"]
