"""Calls in a fork of this process, whose effects on Python, torch and native code do not return.

A fork has only the thread that called it, so a lock or a pool of another thread would block it. A
GPU cannot be used in a fork after its first use. The functions are called without a fork then.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exporter.processes.lifetime import die_with_parent
from exporter.worker.process.setup import dump_stack_at_time_limit, flush_output


def can_fork() -> bool:
    """Return True if a fork of this process can continue: one thread, and no GPU."""
    uses_gpu: Callable[[], bool] = torch.cuda.is_initialized  # torch has no types for it
    has_one_thread = threading.active_count() == 1 and torch.get_num_threads() == 1
    return sys.platform == "linux" and has_one_thread and not uses_gpu()


def compute_in_fork(function: Callable[[], Any]) -> Any | None:
    """Return the result of a function in a fork without output; this process does not change.

    The result may contain tensors, text and numbers in lists, tuples and dicts. It is None if the
    function raises an exception, or if its process ends.
    """
    with _keep_exit_status():
        reader, writer = os.pipe()
        pid = _fork()
        if pid == 0:
            code = 1
            try:
                os.close(reader)
                dump_stack_at_time_limit(os.dup(2))
                null = os.open(os.devnull, os.O_WRONLY)
                for stream in (1, 2):
                    os.dup2(null, stream)
                data = io.BytesIO()
                torch.save(function(), data)
                with os.fdopen(writer, "wb") as file:
                    file.write(data.getbuffer())
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            content = file.read()
        _, status = os.waitpid(pid, 0)
        return torch.load(io.BytesIO(content)) if content and status == 0 else None


def run_in_fork(function: Callable[[], object]) -> None:
    """Run a function in a fork, and end this process in the same way if the fork fails.

    Without a fork, the function runs in this process.
    """
    if not can_fork():
        function()
        return
    flush_output()
    with _keep_exit_status():
        pid = _fork()
        if pid == 0:
            code = 1
            try:
                function()
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
