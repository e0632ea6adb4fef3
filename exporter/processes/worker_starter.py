"""Choose how workers are started on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from exporter.processes.environment import make_worker_environment
from exporter.processes.fork_server_client import ForkServerStarter
from exporter.processes.spawner import ProcessStarter, Spawner


def make_starter(environment: Mapping[str, str], variables: Iterable[str] = ()) -> ProcessStarter:
    """Return a fork server on Linux, because its kernel ends children with their parent.

    Args:
        environment: The environment of the parent.
        variables: The names of more variables for workers, with wildcards.
    """
    return make_worker_starter(make_worker_environment(environment, variables))


def make_worker_starter(worker_environment: Mapping[str, str]) -> ProcessStarter:
    """Return the starter of workers that have exactly these variables."""
    is_linux = sys.platform == "linux"
    return ForkServerStarter(worker_environment) if is_linux else Spawner(worker_environment)
