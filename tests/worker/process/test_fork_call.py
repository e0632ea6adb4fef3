"""Calls in a fork: results, failures, and no effect on this process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.processes.lifetime import list_children
from exporter.worker.process import fork_call
from exporter.worker.process.fork_call import (
    can_fork,
    collect_in_fork,
    compute_in_fork,
    run_in_fork,
)
from tests.worker.contracts import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are safe on Linux only")


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests may leave threads
    monkeypatch.setattr(fork_call, "uses_accelerator", lambda: False)
    yield
    torch.set_num_threads(threads)


def test_the_result_returns_and_nothing_else() -> None:
    kept: list[int] = []

    def compute() -> tuple[torch.Tensor, int]:
        kept.append(1)
        return torch.arange(3), os.getpid()

    result = compute_in_fork(compute)
    assert result is not None
    assert torch.equal(result[0], torch.arange(3))
    assert result[1] != os.getpid()
    assert kept == []


@pytest.mark.parametrize("code", ["1 / 0", "os._exit(0)", "os.abort()"])
def test_an_end_without_a_result_gives_none(code: str) -> None:
    assert compute_in_fork(lambda: exec(code, {"os": os})) is None


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("pass", ""),
        ("1 / 0", "failed: ZeroDivisionError"),
        ("os.abort()", "was terminated by SIGABRT"),
        ("os._exit(0)", "exited with code 0"),
        ("while True: pass", "was stopped after 0.3 s"),
        ("time.sleep(60)", "was stopped after 0.3 s"),
        (
            "signal.pthread_sigmask(0, signal.valid_signals()); time.sleep(60)",
            "was stopped after 0.3 s",
        ),
        ("subprocess.run(['sleep', '60'])", "was stopped after 0.3 s"),
        ("subprocess.Popen(['sleep', '1'], start_new_session=True, close_fds=False)", ""),
    ],
)
def test_the_items_before_an_end_are_kept(
    code: str, problem: str, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list_children()
    ended: list[bool] = []
    monkeypatch.setattr(fork_call, "end_runtime_processes", lambda: ended.append(True))

    def work() -> Iterator[object]:
        yield torch.arange(3)
        yield {"text": "b" * 100_000}
        exec(code, {name: import_module(name) for name in ("os", "signal", "subprocess", "time")})
        yield os.getpid()

    (first, second, *last), text = collect_in_fork(work, 0.3)
    assert torch.equal(first, torch.arange(3))
    assert second == {"text": "b" * 100_000}
    assert text == problem
    assert bool(last) is not bool(problem)
    assert os.getpid() not in last
    assert ended == ([True] if problem else [])
    assert list_children() == before


def test_without_a_fork_the_function_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_call, "can_fork", lambda: False)

    def fail() -> Iterator[int]:
        yield os.getpid()
        raise ValueError

    assert collect_in_fork(lambda: [os.getpid()], 1.0) == ([os.getpid()], "")
    assert collect_in_fork(fail, 1.0) == ([os.getpid()], "failed: ValueError")


def test_another_thread_prevents_a_fork(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork()
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert not can_fork()


#: Derivatives after a capture, and in a fork; it prints the names of the threads.
DERIVATIVES = """
import os, sys, torch
from pathlib import Path
from torch._subclasses.fake_tensor import FakeTensorMode
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.process.setup import keep_one_thread

def derive():
    x = torch.ones(3, requires_grad=True)
    return torch.autograd.grad((x * x).sum(), x)[0].tolist()

keep_one_thread()
with FakeTensorMode():
    torch.ones(2)
assert derive() == [2.0, 2.0, 2.0]
names = {each.read_text() for each in Path("/proc/self/task").glob("*/comm")}
has_device = any(name.startswith("pt_autograd") for name in names)
assert has_device == torch.cuda.is_available()
assert can_fork() != has_device
assert has_device or compute_in_fork(derive) == [2.0, 2.0, 2.0]
"""


def test_derivatives_work_in_a_fork_after_a_capture() -> None:
    """Without a GPU also with a build for CUDA, of which a capture creates a device."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    subprocess.run([sys.executable, "-c", DERIVATIVES], env=environment, check=True)


def test_a_thread_of_a_device_for_derivatives_prevents_a_fork(one_thread: None) -> None:
    named, ended = threading.Event(), threading.Event()

    def wait() -> None:
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")  # PR_SET_NAME
        named.set()
        ended.wait()

    thread = threading.Thread(target=wait)
    assert can_fork()
    thread.start()
    named.wait()
    try:
        assert not can_fork()
    finally:
        ended.set()
        thread.join()
    assert can_fork()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: os.waitpid(-1, 0)])
def test_a_model_that_collects_its_children_loses_no_result(handler: Any) -> None:
    previous = signal.signal(signal.SIGCHLD, handler)
    try:
        assert compute_in_fork(lambda: 3) == 3
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, previous)


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ("open('file', 'w').write('a')", 0, ""),
        ("sys.exit(4)", 4, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("os.abort()", -signal.SIGABRT, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_a_process_ends_as_its_fork(
    body: str, code: int, text: str, tmp_path: Path, one_thread: None
) -> None:
    kept: list[int] = []

    def call() -> None:
        kept.append(1)
        exec(body, {"os": os, "signal": signal, "sys": sys})

    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)
            for number in (1, 2):
                os.dup2(os.open(f"{number}.txt", os.O_CREAT | os.O_WRONLY), number)
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - until the process ends
            run_in_fork(call)
            os.write(1, f"after {kept}".encode())
        finally:
            os._exit(0 if kept == [] else 99)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert (tmp_path / "1.txt").read_text() == ("" if code else "after []")
    assert text in (tmp_path / "2.txt").read_text()
    assert (tmp_path / "file").exists() is (code == 0)
