"""Child processes that receive one request and return one response.

The parent calls `send_request`, and the module calls `serve_request`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from exporter.processes.spawner import signal_group

#: Bytes of stderr that a result contains: the error message is at the end.
_LOG_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """The end of a child process."""

    code: int | None
    """The exit code, less than 0 for a signal; None after a timeout."""
    response: bytes | None
    """None if the process wrote no response."""
    log: str
    """The end of stderr."""
    timeout: float | None = None
    """In seconds."""

    def describe_end(self) -> str:
        """Return how the process ended, with the last line of its log."""
        lines = self.log.strip().splitlines()
        if self.code is None:
            return f"did not finish within {self.timeout:g} s"
        return f"{describe_exit(self.code)}{': ' if lines else ''}{lines[-1] if lines else ''}"


def describe_exit(code: int) -> str:
    """Return a phrase for an exit code, such as `was terminated by SIGSEGV`.

    Args:
        code: As `subprocess` reports it: less than 0 for a signal.
    """
    if code >= 0:
        return f"exited with code {code}"
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL, most often for its memory)"
    try:
        return f"was terminated by {signal.Signals(-code).name}"
    except ValueError:
        return f"was terminated by signal {-code}"


def send_request(
    module: str,
    request: str,
    environment: Mapping[str, str] | None,
    *,
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
    own_group: bool = True,
) -> ChildResult:
    """Run `python -m module REQUEST RESPONSE` and wait for its end.

    Args:
        module: A package with a `__main__` that calls `serve_request`.
        request: The content of the file REQUEST.
        environment: All variables of the process; None: those of this process.
        timeout: Seconds from the start, or the last line, until the process and its children are
            killed.
        on_line: Called with each line of stdout. Without it, stdout is discarded.
        own_group: Whether the process has a group of its own, which is killed at its end. If not,
            it ends with the group of this process.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        path, response = Path(folder) / "request.json", Path(folder) / "response"
        path.write_text(request, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(path), str(response)],
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else subprocess.DEVNULL,
            stderr=log,
            start_new_session=own_group,
            encoding="utf-8",
            errors="replace",
        )

        def kill() -> None:
            if own_group:
                signal_group(process.pid, signal.SIGKILL)
            process.kill()

        code = None
        try:
            with _Deadline(timeout, kill) as deadline:
                for line in process.stdout or ():
                    deadline.extend()
                    if on_line:
                        on_line(line)
                code = process.wait()
                code = None if deadline.is_over else code
        finally:
            kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
        text = log.read().decode("utf-8", errors="replace").strip()
        content = response.read_bytes() if response.is_file() else None
        return ChildResult(code=code, response=content, log=text, timeout=timeout)


class _Deadline:
    """Calls a function after some seconds in which nothing extended them."""

    def __init__(self, seconds: float | None, action: Callable[[], None]) -> None:
        self._seconds, self._action = seconds, action
        self._changed = threading.Condition()
        self._end, self._is_open = 0.0, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.is_over = False

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self.extend()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_open = False
            self._changed.notify()
        if self._seconds is not None:
            self._thread.join()

    def extend(self) -> None:
        """Count the seconds from now."""
        self._end = time.monotonic() + (self._seconds or 0)

    def _watch(self) -> None:
        with self._changed:
            while self._is_open and (left := self._end - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._is_open:
                self.is_over = True
                self._action()


def serve_request(handle: Callable[[bytes], str]) -> None:
    """Read the request that the command line names and write the response of `handle`."""
    request, response = (Path(argument) for argument in sys.argv[1:3])
    part = response.with_suffix(".part")
    part.write_text(handle(request.read_bytes()), encoding="utf-8", errors="replace")
    part.replace(response)
