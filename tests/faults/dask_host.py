"""A preload of `dask worker`: jobs run the quick worker of this folder instead of torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from exporter.cache import fingerprint
from exporter.cluster import host_run
from exporter.processes import ForkServerStarter

_WORKER = Path(__file__).with_name("worker.py")


def make_host_starter(variables: Mapping[str, str]) -> ForkServerStarter:
    """Return a starter of the quick worker."""
    environment = {**variables, "FAULTS_FOLDER": os.environ["FAULTS_FOLDER"]}
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(_WORKER)]
    return ForkServerStarter(environment, command, [sys.executable, _WORKER])


class Attack:
    """A reply that creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(os.environ["FAULTS_ATTACK"]),)


host_run.make_host_starter = make_host_starter
if os.environ.get("FAULTS_ATTACK"):
    host_run.run_request = lambda *_: Attack()
if state := os.environ.get("FAULTS_TORCH"):
    host_run.read_tool_parts = lambda: {
        **fingerprint.read_tool_parts(),
        "tool.torch": state,
    }
