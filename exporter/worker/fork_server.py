"""The fork server for workers: `python -m exporter.worker.fork_server`, on Linux.

The server must have no thread, device or session when it forks. It ends with its parent and
kills its workers with their children. If the server itself is killed, the kernel kills the
workers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NoReturn

from exporter.core.import_object import ignore_project_bytecode
from exporter.processes.lifetime import (
    adopt_orphans,
    clear_parent_death_signal,
    die_with_parent,
    hide_memory,
    list_children,
    prefer_for_oom_kill,
    show_memory,
)
from exporter.worker.__main__ import main as run_worker
from exporter.worker.dependencies.packages import preload_states
from exporter.worker.process.setup import flush_output

_MODULES = ("exporter.worker.job_runner", "onnx.reference", "torch.onnx")
#: The modules of captures and of their conversion: half of all imports.
_CAPTURE_MODULES = ("sympy.tensor.tensor", "onnxscript.optimizer", "onnxscript.version_converter")


def preload() -> None:
    """Import the modules and fill the caches that are equal in every worker.

    A module that cannot be imported is skipped: the worker reports it in the log of its job. ONNX
    Runtime is not imported, because its import starts a thread, which does not survive a fork.
    """
    # It resolves hundreds of folders, and in a worker each access to a file is recorded. It
    # precedes the imports, because they search the folders of `PYTHONPATH`.
    ignore_project_bytecode()
    with _no_garbage():
        _import(_MODULES)
        preload_states()


@cache
def preload_capture() -> None:
    """Do the same, once, for workers that capture a program; a trace needs none of it."""
    with _no_garbage():
        _import(_CAPTURE_MODULES)
        with contextlib.suppress(ImportError):
            import torch

            # torch may be missing or broken: the server starts, and the worker reports it.
            from exporter.worker.torch_private.guards import PRIVATE_MODULES

            _import(PRIVATE_MODULES)
            from exporter.worker.torch_private.export_speedups import preload_registry

            preload_registry()
            # The table of all decompositions imports the operators of torch.
            dict(torch.export.default_decompositions())
            preload_states()


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Create objects that the garbage collector need not examine: all live until the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


#: The number of digits of the secret.
_SECRET_LENGTH = 32
#: How often orphans of orphans are searched, which a process can create without end.
_MAX_GENERATIONS = 1000


class ForkServer:
    """The server loop: forks workers, or runs of a script, and reports their exits.

    `secret`: The first bytes of each event.
    """

    def __init__(self, script: str, secret: bytearray) -> None:
        self._script = script
        self._secret = secret
        self._numbers: dict[int, int] = {}
        self._partial_line = b""
        # The signal of a child's exit writes to this pipe, which ends the wait in `select`.
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until stdin or the reader of stdout is closed, then kill all workers."""
        try:
            self._report(ready=1)
            is_open = True
            while is_open:
                ready, _, _ = select.select([0, self._pipe[0]], [], [])
                if self._pipe[0] in ready:
                    os.read(self._pipe[0], 1 << 12)
                self._report_exits()
                if 0 in ready:
                    # Start the requested workers; return False at the end of stdin.
                    data = os.read(0, 1 << 16)
                    *lines, self._partial_line = (self._partial_line + data).split(b"\n")
                    for line in lines:
                        request = json.loads(line)
                        if "start" in request:
                            self._start(request)
                        else:
                            self._report(alive=1)
                    is_open = bool(data)
        except BrokenPipeError:
            pass  # the parent ended, and stdin would end next
        finally:
            for pid in self._numbers:
                # First the worker, because it may lead no group yet, and could start children.
                for send in (os.kill, os.killpg):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        send(pid, signal.SIGKILL)
            self._numbers.clear()
            self._kill_orphans()

    def _start(self, request: dict[str, Any]) -> None:
        if request.get("captures") and not self._script:
            preload_capture()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._secret[:] = bytes(
                    len(self._secret)
                )  # a worker is a copy of this memory, and its model could read the secret
                die_with_parent(server)
                show_memory()
                adopt_orphans()
                prefer_for_oom_kill()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in self._pipe:
                    os.close(end)
                _execute_request(request, self._script)
            finally:
                # If the child returned from here, it would kill its siblings like the server.
                os._exit(1)
        self._numbers[pid] = int(request["start"])
        self._report(started=self._numbers[pid], pid=pid)

    def _report_exits(self) -> None:
        while True:
            try:
                # WNOWAIT keeps the process ID, so no other process gets it before `killpg`.
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # there are no children
                return
            if exited is None:
                return
            if exited.si_pid not in self._numbers:
                os.waitpid(exited.si_pid, 0)
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(exited.si_pid, signal.SIGKILL)  # the remaining children of the worker
            _, status = os.waitpid(exited.si_pid, 0)
            number = self._numbers.pop(exited.si_pid)
            self._kill_orphans()
            self._report(ended=number, code=os.waitstatus_to_exitcode(status))

    def _kill_orphans(self) -> None:
        """Kill all descendants of ended workers, also those that left the process group.

        Orphans of a running worker are children of that worker.
        """
        for _ in range(_MAX_GENERATIONS):
            orphans = [pid for pid in list_children() if pid not in self._numbers]
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                os.waitpid(pid, 0)  # its children are orphans now
            if not orphans:
                return

    def _report(self, **fields: int) -> None:
        # One call, so that the event is one piece and no other copy of the secret exists.
        os.writev(1, [self._secret, b" ", json.dumps(fields).encode(), b"\n"])


def _execute_request(request: dict[str, Any], script: str) -> NoReturn:
    """Run `python -m exporter.worker JOB` or the script in the child, and exit."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        # An earlier worker of this job may have replaced the log by a pipe or a link.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        log = os.open(request["log"], flags, 0o644)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        os.close(log)
        os.close(null)
        os.chdir(request["folder"])
        # Without a new seed, all forks would draw the same random numbers.
        random.seed()
        if "numpy" in sys.modules:
            import numpy as np

            np.random.seed(int.from_bytes(os.urandom(4), "little"))
        # A zip archive may have changed since the server read its table.
        importlib.invalidate_caches()
        sys.argv = [script or "exporter.worker", request["job"]]
        if script:
            runpy.run_path(script, run_name="__main__")
            code = 0
        else:
            code = run_worker()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # log any exception, because the child exits here
        flush_output()
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        flush_output()
        os._exit(code & 0xFF)


def main() -> None:
    """Import the modules and fork workers until stdin ends."""
    die_with_parent(os.getppid())
    script = sys.argv[1] if len(sys.argv) > 1 else ""
    if not script:
        preload()
    # From here on, the end of stdin shows the end of the parent and leaves time to kill workers.
    clear_parent_death_signal()
    hide_memory()
    adopt_orphans()
    # The first line of stdin, in the only copy, which forks can erase. A pipe delivers a short
    # message as one piece.
    secret, newline = bytearray(_SECRET_LENGTH), bytearray(1)
    if os.readv(0, [secret, newline]) > _SECRET_LENGTH:  # else stdin ended
        ForkServer(script, secret).run()
    os._exit(0)


if __name__ == "__main__":
    main()
