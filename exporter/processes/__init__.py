"""Processes of their own for what may fail: what they may see, and how they are started.

Nothing of the project is loaded here: a worker can be on its way before its job is known.
"""

from exporter.processes.environment import worker_environment
from exporter.processes.fork_server_client import ForkServerStarter
from exporter.processes.spawn import ProcessStarter, Spawner

__all__ = ["ForkServerStarter", "ProcessStarter", "Spawner", "worker_environment"]
