"""Where workers start warm: `python -m exporter.worker.fork_server`, on Linux.

In: on stdin, a line of JSON for each worker to start. Out: on stdout, a line when it is ready, and
one for each start and each end of a worker. Everything that workers need is imported here once;
each worker is a fork.

Nothing here may hold a thread, a device or a session when it forks. The nursery ends with its
parent, and takes along its workers and what they started; should it be killed itself, the kernel
ends the workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import runpy
import select
import signal
import sys
import traceback
from typing import NoReturn

from exporter.worker.__main__ import main as work
from exporter.worker.process.lifetime import (
    clear_parent_death_signal,
    die_with_parent,
    prefer_for_oom_kill,
)
from exporter.worker.process.output_log import flush_output


class ForkServer:
    """Forks on demand and tells of every end.

    Args:
        script: What each worker runs in the place of the worker proper; empty for that.
    """

    def __init__(self, script: str) -> None:
        self._script = script
        self._numbers: dict[int, int] = {}
        self._orders = b""
        # The signal of a child's end wakes `select`.
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

    def run(self) -> None:
        """Works until stdin ends, or until nobody hears what it says."""
        try:
            _say(ready=1)
            while self._serve():
                pass
        except BrokenPipeError:
            pass  # the parent is gone, which stdin would have told next
        finally:
            self._end_all()

    def _serve(self) -> bool:
        """Waits for orders and ends, and sees to them; False where no more orders can come."""
        ready, _, _ = select.select([0, self._pipe[0]], [], [])
        if self._pipe[0] in ready:
            os.read(self._pipe[0], 1 << 12)
        self._reap()
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return False
            *lines, self._orders = (self._orders + data).split(b"\n")
            for line in lines:
                self._start(json.loads(line))
        return True

    def _start(self, order: dict[str, str]) -> None:
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(nursery)
                prefer_for_oom_kill()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in self._pipe:
                    os.close(end)
                _be_worker(order, self._script)
            finally:
                # A fork that came back from here would end its siblings, as the nursery does.
                os._exit(1)
        self._numbers[pid] = int(order["start"])
        _say(started=self._numbers[pid], pid=pid)

    def _end_all(self) -> None:
        """The parent is gone: ends the workers with whatever they started."""
        for pid in self._numbers:
            # The worker first: one that leads no group yet would miss the other signal, and
            # one that lives on could start more.
            for send in (os.kill, os.killpg):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._numbers:
            # Looked at first and buried later: until then no other process gets its number.
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(found.si_pid, signal.SIGKILL)  # what it left behind
            _, status = os.waitpid(found.si_pid, 0)
            number = self._numbers.pop(found.si_pid)
            _say(ended=number, code=os.waitstatus_to_exitcode(status))


def _be_worker(order: dict[str, str], script: str) -> NoReturn:
    """In the child: does what `python -m exporter.worker JOB` would, and never returns."""
    code = 1
    try:
        os.setsid()
        _redirect(order["log"])
        os.chdir(order["folder"])
        _reseed()
        sys.argv = [script or "exporter.worker", order["job"]]
        if script:
            runpy.run_path(script, run_name="__main__")
            code = 0
        else:
            code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # whatever it is, it is told, and the fork ends here
        flush_output()
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        flush_output()
        os._exit(code & 0xFF)


def _redirect(log: str) -> None:
    """Output to the log, nothing to read."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)


def _reseed() -> None:
    """Siblings draw other random numbers, as processes of their own would."""
    random.seed()
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(int.from_bytes(os.urandom(4), "little"))


def _say(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def main() -> None:
    """Imports, then forks until stdin ends."""
    die_with_parent(os.getppid())
    script = sys.argv[1] if len(sys.argv) > 1 else ""
    if not script:
        from exporter.worker.preload import preload

        preload()
    # From here on the end of stdin tells of the parent's end, and leaves time to end the workers.
    clear_parent_death_signal()
    ForkServer(script).run()
    os._exit(0)


if __name__ == "__main__":
    main()
