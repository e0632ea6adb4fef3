"""Calls in a fork of this process, whose effects on Python, torch and native code do not return.

A fork has only the thread that called it, so a lock or a pool of another thread would block it. A
GPU cannot be used in a fork after its first use, nor can derivatives after the first ones beside a
GPU. The functions are called without a fork then.
"""

from __future__ import annotations

import faulthandler
import io
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from exporter.core.system import IS_LINUX
from exporter.processes.child_call import describe_exit
from exporter.processes.lifetime import CpuLimit, die_with_parent, list_descendants
from exporter.runtimes.runtime_process import end_runtime_processes
from exporter.runtimes.runtime_registry import uses_accelerator
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.process.setup import dump_stack_at_time_limit, flush_output


def can_fork() -> bool:
    """Return True if a fork of this process can continue: one thread, and no GPU."""
    uses_gpu: Callable[[], bool] = torch.cuda.is_initialized  # torch has no types for it
    has_one_thread = threading.active_count() == 1 and torch.get_num_threads() == 1
    return IS_LINUX and has_one_thread and not uses_gpu() and not _has_derivative_threads()


def _has_derivative_threads() -> bool:
    """Return True if PyTorch's engine of derivatives has a thread for a device (Linux)."""
    for file in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread ended
            if file.read_text(encoding="ascii", errors="replace").startswith("pt_autograd"):
                return True
    return False


def compute_in_fork(function: Callable[[], Any]) -> Any | None:
    """Return the result of a function in a fork, as `collect_in_fork` without a limit.

    It is None if the function raises an exception, or if its process ends. Without the parts of
    Linux, the function runs in this process.
    """
    if not IS_LINUX:
        with suppress(Exception):
            return function()
        return None
    items, problem = _read_fork(lambda: [function()], math.inf)
    if problem:
        EXECUTED.add_all()
    return items[0] if items and not problem else None


def collect_in_fork(function: Callable[[], Iterable[Any]], seconds: float) -> tuple[list[Any], str]:
    """Return the items that a function yields in a fork without output; nothing else returns.

    An item may contain tensors, text and numbers in lists, tuples and dicts. If a fork is
    impossible, the function runs in this process, without the limit.

    `seconds`: CPU time of the fork and its descendants, after which they are killed.

    Returns:
        The items before the end, and the reason for an early end, such as
        `was terminated by SIGABRT`; "" if there is none.
    """
    if can_fork() and not uses_accelerator():
        return _read_fork(function, seconds)
    items: list[Any] = []
    try:
        items.extend(function())  # it keeps the items before an exception
    except Exception as error:
        return items, f"failed: {type(error).__name__}"
    return items, ""


def _read_fork(function: Callable[[], Iterable[Any]], seconds: float) -> tuple[list[Any], str]:
    reader, writer = Pipe(duplex=False)
    count = len(EXECUTED.blocks)
    with _keep_exit_status():
        pid = _fork()
        if pid == 0:
            try:
                _send_items(function, writer)
            finally:
                EXECUTED.share(count)
                os._exit(0)
        writer.close()
        with reader:
            messages, is_late = _receive_items(reader, pid, seconds)
        _, status = os.waitpid(pid, 0)
    if messages and isinstance(messages[-1], str):
        problem = messages.pop()
    elif is_late:
        problem = f"was stopped after {seconds:g} s"
    else:
        problem = describe_exit(os.waitstatus_to_exitcode(status))
    if problem:
        end_runtime_processes()  # the fork may have left one inside of a message
    return [item for (item,) in messages], problem


def _send_items(function: Callable[[], Iterable[Any]], pipe: Connection) -> None:
    """Send each item in a list, and at the end the text of an exception, or ""."""
    dump_stack_at_time_limit(os.dup(2))
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)

    def send(message: object) -> None:
        data = io.BytesIO()
        torch.save(message, data)
        pipe.send_bytes(data.getbuffer())

    problem = ""
    try:
        for item in function():
            send([item])
    except BaseException as error:
        problem = f"failed: {type(error).__name__}"
    send(problem)


def _receive_items(pipe: Connection, pid: int, seconds: float) -> tuple[list[Any], bool]:
    """Return the messages of a fork, and whether it was killed with its descendants."""
    messages: list[Any] = []
    limit = CpuLimit(pid, seconds)
    while True:
        if pipe.poll(limit.interval):
            try:
                messages.append(torch.load(io.BytesIO(pipe.recv_bytes())))
            except (EOFError, OSError):  # it ended, perhaps inside of a message
                return messages, False
        elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return messages, False  # a descendant of it keeps the pipe open
        if limit.find_excess(len(messages)):
            for each in (*list_descendants(pid), pid):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            return messages, True


def run_in_fork(function: Callable[[], object]) -> None:
    """Run a function in a fork, and end this process in the same way if the fork fails.

    Without a fork, the function runs in this process.
    """
    if not can_fork():
        function()
        return
    flush_output()
    count = len(EXECUTED.blocks)
    with _keep_exit_status():
        pid = _fork()
        if pid == 0:
            code = 1
            try:
                function()
                EXECUTED.share(count)
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                if code and (error := sys.exc_info()[1]) is not None:
                    sys.excepthook(type(error), error, error.__traceback__)
                flush_output()
                os._exit(code & 0xFF)
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        faulthandler.disable()  # the log has the frames of the fork
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code:
        flush_output()
        os._exit(code)


@contextmanager
def _keep_exit_status() -> Iterator[None]:
    """Keep the exit status of a child, which a model loses if it ignores or handles SIGCHLD."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if handler is not None:  # None: set by native code
            signal.signal(signal.SIGCHLD, handler)


def _fork() -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads of native libraries, too; they are idle pools.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        die_with_parent(parent)
    return pid
