"""The processes that judge a model are hidden from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.processes.lifetime import CpuLimit, list_descendants

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


#: Uses this share of a core for 60 s.
SPIN = """
import sys, time
end, share = time.monotonic() + 60, float(sys.argv[1])
while time.monotonic() < end:
    start = time.process_time()
    while time.process_time() - start < 0.1 * share:
        pass
    time.sleep(0.1 * (1 - share))
"""


@pytest.mark.parametrize(
    ("share", "limit", "excess"),
    [(1.0, 1.0, "time"), (0.2, 1.0, None), (0.0, 1.0, "silence"), (0.0, 60.0, None)],
    ids=["busy", "a loaded machine", "waiting", "a long limit"],
)
def test_a_limit_counts_cpu_time(share: float, limit: float, excess: str | None) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}, '{share}'])"
    with subprocess.Popen([sys.executable, "-c", child]) as process:
        try:
            cpu = CpuLimit(process.pid, limit)
            end = time.monotonic() + (50.0 if excess else 1.5)
            found = None
            while found is None and time.monotonic() < end:
                found = cpu.find_excess()
                time.sleep(0.05)
        finally:
            for pid in (*list_descendants(process.pid), process.pid):
                os.kill(pid, signal.SIGKILL)
    assert found == excess
