"""The fork server: its workers end with it, and jobs run without it if it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.processes import ForkServerStarter, make_worker_environment
from exporter.processes.fork_server_client import WorkerCommand, WorkerProcess
from tests.integration.project import (
    MODELS,
    ROOT,
    format_entry,
    run_exporter,
    run_python,
    write_project,
)
from tests.integration.test_local_engine import is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

SLEEPS = "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
SLEEPS += "time.sleep(60)\n"


def make_command(folder: Path, name: str = "job") -> WorkerCommand:
    return WorkerCommand(job=folder / name, log=folder / f"{name}.log", folder=folder)


def read_pid(started: WorkerCommand) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if started.job.exists() and (text := started.job.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("no worker came up")


def make_starter(folder: Path, body: str, **changes: object) -> ForkServerStarter:
    script = folder / "worker.py"
    script.write_text(body)
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(script)]
    return ForkServerStarter(make_worker_environment(os.environ), command, **changes)


def wait_for_exit(process: WorkerProcess) -> int | None:
    assert process.wait(20)
    return process.poll()


def test_workers_of_a_killed_fork_server_are_killed_and_a_new_one_starts(
    tmp_path: Path,
) -> None:
    starter = make_starter(tmp_path, SLEEPS)
    try:
        first = starter.start(make_command(tmp_path, "first"))
        worker = read_pid(make_command(tmp_path, "first"))
        server = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)
        assert wait_for_exit(first) == -signal.SIGKILL
        assert not is_alive(worker)
        starter.start(make_command(tmp_path, "second"))
        second = read_pid(make_command(tmp_path, "second"))
    finally:
        starter.close()
    assert not is_alive(second)


@pytest.mark.parametrize("broken", ["raise SystemExit(1)", "import time; time.sleep(0.2)"])
def test_without_a_fork_server_each_job_has_a_new_python(tmp_path: Path, broken: str) -> None:
    script = tmp_path / "plain.py"
    script.write_text("raise SystemExit(5)")
    environment = make_worker_environment(os.environ)
    plain = [sys.executable, str(script)]
    starter = ForkServerStarter(environment, [sys.executable, "-c", broken], plain)
    try:
        codes = [wait_for_exit(starter.start(make_command(tmp_path, name))) for name in ("a", "b")]
    finally:
        starter.close()
    assert codes == [5, 5]


def test_the_kernel_kills_a_worker_before_the_fork_server_if_memory_runs_out(
    tmp_path: Path,
) -> None:
    body = (
        "import pathlib, os, sys\nscores = [pathlib.Path(f'/proc/{pid}/oom_score_adj').read_text()"
    )
    body += (
        " for pid in ('self', os.getppid())]\npathlib.Path(sys.argv[1]).write_text(''.join(scores))"
    )
    starter = make_starter(tmp_path, body)
    try:
        assert wait_for_exit(starter.start(make_command(tmp_path))) == 0
    finally:
        starter.close()
    parent_score = Path("/proc/self/oom_score_adj").read_text()
    assert (tmp_path / "job").read_text() == f"1000\n{parent_score}"


def test_the_kernel_kills_a_worker_with_a_new_python_first(tmp_path: Path) -> None:
    script = "from exporter.worker.__main__ import prefer_for_oom_kill; prefer_for_oom_kill()\n"
    script += "print(open('/proc/self/oom_score_adj').read())"
    assert run_python(tmp_path, "-c", script).stdout.strip() == "1000"


def test_workers_do_not_share_memory(tmp_path: Path) -> None:
    body = "import sys\nassert not hasattr(sys, 'left')\nsys.left = True\nraise SystemExit(3)\n"
    starter = make_starter(tmp_path, body)
    try:
        assert [wait_for_exit(starter.start(make_command(tmp_path))) for _ in range(3)] == [3, 3, 3]
    finally:
        starter.close()


@pytest.mark.parametrize("how", ["sys.stdout = None", "sys.stdout.close()", "sys.stderr.close()"])
def test_a_worker_with_closed_streams_does_not_affect_others(tmp_path: Path, how: str) -> None:
    breaks = f"if sys.argv[1].endswith('breaks'):\n    {how}\n    raise ValueError('the end')\n"
    starter = make_starter(tmp_path, "import sys\n" + breaks + SLEEPS)
    try:
        sibling = starter.start(make_command(tmp_path, "sleeps"))
        worker = read_pid(make_command(tmp_path, "sleeps"))
        assert wait_for_exit(starter.start(make_command(tmp_path, "breaks"))) == 1
        assert not sibling.wait(0.5)
        os.kill(worker, 0)  # it still runs
    finally:
        starter.close()
    if "stderr" not in how:
        assert "ValueError: the end" in (tmp_path / "breaks.log").read_text()


def test_workers_draw_different_random_numbers(tmp_path: Path) -> None:
    body = "import random, sys\nwith open(sys.argv[1], 'a') as f: print(random.random(), file=f)\n"
    starter = make_starter(tmp_path, body)
    try:
        assert [wait_for_exit(starter.start(make_command(tmp_path))) for _ in range(2)] == [0, 0]
    finally:
        starter.close()
    assert len(set((tmp_path / "job").read_text().split())) == 2


def test_the_fork_server_has_a_single_thread() -> None:
    script = """
import os
from exporter.worker.fork_server import preload
preload()
print(len(os.listdir("/proc/self/task")))
"""
    environment = make_worker_environment(os.environ)
    process = run_python(ROOT, "-W", "ignore", "-c", script, **environment)
    assert process.stdout.split()[-1] == "1", process.stderr


def list_children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def test_prepare_starts_the_fork_server_and_close_ends_it(tmp_path: Path) -> None:
    before = list_children()
    starter = make_starter(tmp_path, SLEEPS)
    assert list_children() == before
    starter.prepare()
    (server,) = list_children() - before
    starter.prepare()
    starter.start(make_command(tmp_path))
    worker = read_pid(make_command(tmp_path))
    assert list_children() - before == {server}
    starter.close()
    assert not is_alive(worker)
    assert not is_alive(server)
    starter.prepare()
    (second,) = list_children() - before
    starter.close()
    assert not is_alive(second)


def test_a_dead_fork_server_is_replaced(tmp_path: Path) -> None:
    before = list_children()
    starter = make_starter(tmp_path, "raise SystemExit(3)")
    starter.prepare()
    (server,) = list_children() - before
    os.kill(server, signal.SIGKILL)
    assert not is_alive(server)
    try:
        assert wait_for_exit(starter.start(make_command(tmp_path))) == 3
    finally:
        starter.close()


def test_sleep_ends_with_a_worker(tmp_path: Path) -> None:
    starter = make_starter(tmp_path, "import time; time.sleep(0.3)")
    try:
        process = starter.start(make_command(tmp_path))
        starter.sleep(60.0)
        assert process.poll() == 0
        start = time.monotonic()
        starter.sleep(0.2)
        assert time.monotonic() - start >= 0.2
    finally:
        starter.close()


ENTRY = f"format = 1\n{format_entry('net', 'net.py:Net', opsets=18)}"


@pytest.mark.parametrize(
    ("manifest", "arguments", "expected"),
    [
        (
            ENTRY.replace("inputs", "input"),
            ["export"],
            (1, "net/18/cpu: error at source"),
        ),
        (ENTRY, ["export", "nobody*"], (3, "nobody*")),
        (ENTRY, ["export", "--dry-run"], (0, "net/")),
    ],
)
def test_a_command_without_work_leaves_no_fork_server(
    tmp_path: Path, manifest: str, arguments: list[str], expected: tuple[int, str]
) -> None:
    net = "from torch import nn\n\n\nclass Net(nn.ReLU):\n    pass\n"
    write_project(tmp_path, {"a.toml": manifest, "net.py": net})
    code, message = expected
    process = run_exporter(tmp_path, *arguments, code=code)
    assert message in process.stdout + process.stderr
    assert list(list_processes_in(tmp_path)) == []
    assert os.getpid() in list_processes_in(Path.cwd())


EMPTY_PROC = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "-")


def can_empty_proc() -> bool:
    """Return whether this user may mount a file system that only a child process sees."""
    try:
        return (
            subprocess.run([*EMPTY_PROC, "true"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(not can_empty_proc(), reason="the system permits no mounts of a user")
def test_an_export_ends_without_proc(tmp_path: Path) -> None:
    """The fork server does not see its children then, and it must report their exits."""
    entry = f'{format_entry("net")}memory = "8GiB"\n'
    write_project(tmp_path, {"net.toml": "format = 1\n" + entry, "models.py": MODELS})
    command = [*EMPTY_PROC, sys.executable, "-m", "exporter", "export"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, "1 pass" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    assert "cannot be tracked" in ended.stdout


def list_processes_in(folder: Path) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process belongs to another user or has ended
            if (path / "cwd").readlink() == folder.resolve():
                yield int(path.name)
