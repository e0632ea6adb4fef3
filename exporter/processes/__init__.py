"""Start child processes for work that can fail, with a restricted environment.

The package does not import the manifest: the fork server can start before the job is known.
"""

from exporter.processes.fork_server_client import ForkServerStarter, ProcessStarter
from exporter.processes.worker_variables import make_worker_environment

__all__ = ["ForkServerStarter", "ProcessStarter", "make_worker_environment"]
