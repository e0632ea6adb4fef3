"""The processes that judge a model are hidden from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.processes import lifetime

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="it reads the state of processes in /proc"
)

#: Imports everything, gives up all privileges and tries to open its parent in a fork.
SCRIPT = """
import os, sys
from exporter.processes.lifetime import hide_memory, show_memory
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
show_memory()  # a change of the user hides the memory
if sys.argv[1] == "hidden":
    hide_memory()
parent = os.getpid()
_, end = os.pipe()
child = os.fork()
if child == 0:
    show_memory()
    for name in (f"fd/{end}", "mem"):
        try:
            open(f"/proc/{parent}/{name}", "wb", buffering=0).close()
            print(name[:2], "opened", flush=True)
        except OSError as error:
            print(name[:2], type(error).__name__, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("hidden", "fd PermissionError\nme PermissionError\n"),
        ("visible", "fd opened\nme opened\n"),
    ],
)
def test_a_fork_cannot_open_the_memory_of_a_hidden_parent(mode: str, expected: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert process.stdout == expected


def test_without_proc_the_cpu_time_is_that_of_a_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of a container without `/proc` is not silent, because its time is unknown."""
    monkeypatch.setattr(lifetime, "_OWN_STATE", tmp_path / "stat")
    monkeypatch.setattr(lifetime, "_read_processes", dict)  # `ps` needs `/proc`, too
    before = lifetime.read_cpu_seconds(os.getpid())
    assert lifetime.read_cpu_seconds(os.getpid()) > before
    assert lifetime.list_descendants(os.getpid()) == []
