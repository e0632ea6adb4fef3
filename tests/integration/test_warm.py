"""The nursery: what becomes of workers when it ends, and of jobs where there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.engine import Spawner, Warm, worker_environment
from exporter.engine.starter import Start, Started
from tests.integration.project import ROOT
from tests.integration.test_local_engine import is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

SLEEPS = "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
SLEEPS += "time.sleep(60)\n"

PARENT = """
import os, sys, time
from pathlib import Path
from exporter.engine import Warm, worker_environment
from exporter.engine.starter import Start
folder = Path(sys.argv[1])
command = [sys.executable, "-m", "exporter.worker.nursery", str(folder / "worker.py")]
starter = Warm(worker_environment(os.environ), command)
starter.start(Start(job=folder / "job", log=folder / "log", folder=folder))
time.sleep(60)
"""


def start_of(folder: Path, name: str = "job") -> Start:
    return Start(job=folder / name, log=folder / f"{name}.log", folder=folder)


def pid_of(started: Start) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if started.job.exists() and (text := started.job.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("no worker came up")


def warm(folder: Path, body: str, **changes: object) -> Warm:
    script = folder / "worker.py"
    script.write_text(body)
    command = [sys.executable, "-m", "exporter.worker.nursery", str(script)]
    return Warm(worker_environment(os.environ), command, **changes)


def ended(process: Started) -> int | None:
    assert process.wait(20)
    return process.poll()


def test_workers_of_a_nursery_that_is_killed_count_as_killed_and_the_next_has_another(
    tmp_path: Path,
) -> None:
    starter = warm(tmp_path, SLEEPS)
    try:
        first = starter.start(start_of(tmp_path, "first"))
        worker = pid_of(start_of(tmp_path, "first"))
        nursery = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(nursery, signal.SIGKILL)
        assert ended(first) == -signal.SIGKILL
        assert not is_alive(worker)
        starter.start(start_of(tmp_path, "second"))
        second = pid_of(start_of(tmp_path, "second"))
    finally:
        starter.close()
    assert not is_alive(second)


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    starter = warm(tmp_path, SLEEPS)
    starter.start(start_of(tmp_path))
    worker = pid_of(start_of(tmp_path))
    starter.close()
    assert not is_alive(worker)


def test_the_death_of_the_parent_takes_nursery_and_workers_along(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(SLEEPS)
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    worker = pid_of(start_of(tmp_path))
    process.kill()
    process.wait()
    assert not is_alive(worker)


@pytest.mark.parametrize("broken", ["raise SystemExit(1)", "import time; time.sleep(0.2)"])
def test_where_no_nursery_comes_up_each_job_has_a_python_of_its_own(
    tmp_path: Path, broken: str
) -> None:
    script = tmp_path / "plain.py"
    script.write_text("raise SystemExit(5)")
    environment = worker_environment(os.environ)
    instead = Spawner(environment, [sys.executable, str(script)])
    starter = Warm(environment, [sys.executable, "-c", broken], instead)
    try:
        codes = [ended(starter.start(start_of(tmp_path, name))) for name in ("a", "b")]
    finally:
        starter.close()
    assert codes == [5, 5]


def test_where_memory_runs_out_the_kernel_takes_a_worker_and_not_its_nursery(
    tmp_path: Path,
) -> None:
    body = (
        "import pathlib, os, sys\nscores = [pathlib.Path(f'/proc/{pid}/oom_score_adj').read_text()"
    )
    body += (
        " for pid in ('self', os.getppid())]\npathlib.Path(sys.argv[1]).write_text(''.join(scores))"
    )
    starter = warm(tmp_path, body)
    try:
        assert ended(starter.start(start_of(tmp_path))) == 0
    finally:
        starter.close()
    own = Path("/proc/self/oom_score_adj").read_text()
    assert (tmp_path / "job").read_text() == f"1000\n{own}"


def test_a_worker_with_a_python_of_its_own_goes_first_too(tmp_path: Path) -> None:
    script = "from exporter.worker.__main__ import go_first; go_first()\n"
    script += "print(open('/proc/self/oom_score_adj').read())"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**worker_environment(os.environ), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "1000"


def test_the_death_of_the_parent_takes_what_workers_started_along(tmp_path: Path) -> None:
    body = "import subprocess, pathlib, sys, time\nchild = subprocess.Popen(['sleep', '60'])\n"
    body += "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\ntime.sleep(60)\n"
    (tmp_path / "worker.py").write_text(body)
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    child = pid_of(start_of(tmp_path))
    process.kill()
    process.wait()
    assert not is_alive(child)


def test_what_a_worker_leaves_in_memory_no_other_sees(tmp_path: Path) -> None:
    body = "import sys\nassert not hasattr(sys, 'left')\nsys.left = True\nraise SystemExit(3)\n"
    starter = warm(tmp_path, body)
    try:
        assert [ended(starter.start(start_of(tmp_path))) for _ in range(3)] == [3, 3, 3]
    finally:
        starter.close()


@pytest.mark.parametrize("how", ["sys.stdout = None", "sys.stdout.close()", "sys.stderr.close()"])
def test_a_worker_without_its_streams_ends_alone(tmp_path: Path, how: str) -> None:
    breaks = f"if sys.argv[1].endswith('breaks'):\n    {how}\n    raise ValueError('the end')\n"
    starter = warm(tmp_path, "import sys\n" + breaks + SLEEPS)
    try:
        sibling = starter.start(start_of(tmp_path, "sleeps"))
        worker = pid_of(start_of(tmp_path, "sleeps"))
        assert ended(starter.start(start_of(tmp_path, "breaks"))) == 1
        assert not sibling.wait(0.5)
        assert is_alive(worker)
    finally:
        starter.close()
    if "stderr" not in how:
        assert "ValueError: the end" in (tmp_path / "breaks.log").read_text()


def test_siblings_draw_different_random_numbers(tmp_path: Path) -> None:
    body = "import random, sys\nwith open(sys.argv[1], 'a') as f: print(random.random(), file=f)\n"
    starter = warm(tmp_path, body)
    try:
        assert [ended(starter.start(start_of(tmp_path))) for _ in range(2)] == [0, 0]
    finally:
        starter.close()
    assert len(set((tmp_path / "job").read_text().split())) == 2


def test_the_nursery_forks_with_a_single_thread() -> None:
    script = """
import os
from exporter.worker.preload import preload
preload()
print(len(os.listdir("/proc/self/task")))
"""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**worker_environment(os.environ), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split()[-1] == "1"
