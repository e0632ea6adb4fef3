"""Calls of functions in child processes, because an import, a runtime or a model may crash.

The parent names the function, since its module may import packages that the parent must not
import. Arguments and result are JSON, which the annotations of the function describe.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, create_model
from pydantic_core import from_json, to_json

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.system import IS_LINUX
from exporter.core.text import redact
from exporter.processes.fork_server_client import signal_group
from exporter.processes.lifetime import CpuLimit, die_with_parent, prefer_for_oom_kill

T = TypeVar("T")

CALL_MODULE = "exporter.processes.child_call"
#: The variable with the bytes that the process may allocate (Linux).
MEMORY = "EXPORTER_MEMORY"
_MESSAGE_LENGTH = 2000
#: Bytes of stderr that a failure reads: the error message is at the end.
_LOG_BYTES = 2000
_CODES = frozenset(ExitCode) - {ExitCode.OK}


class ChildFailure(Exception):
    """The process ended without a result; the message is a phrase such as `exited with code 1`."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(redact(message, limit=_MESSAGE_LENGTH))
        self.code = code
        """The exit code, less than 0 for a signal; None after a timeout."""


def describe_exit(code: int) -> str:
    """Return a phrase such as `was terminated by SIGSEGV`; a signal is less than 0."""
    if code >= 0:
        return f"exited with code {code}"
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL, most often for its memory)"
    try:
        return f"was terminated by {signal.Signals(-code).name}"
    except ValueError:
        return f"was terminated by signal {-code}"


def call_in_child(
    function: str,
    arguments: Mapping[str, object],
    returns: type[T],
    environment: Mapping[str, str] | None,
    *,
    seconds: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> T:
    """Call a function in a child process and return its result.

    `function`: `package.module:function`. Its parameters and its result have annotations.
    `environment`: All variables of the process, which then has a group of its own that is killed at
    its end; None: those of this process, with whose group it ends.
    `seconds`: CPU time from the start, or the last line, until the process and its children are
    killed; the same wall time if they wait.
    `on_line`: Called with each line that the function prints. Without it, stdout is discarded.

    Raises:
        ExporterError: if the function raised it.
        ChildFailure: if the process ended without a result.
    """
    call = to_json({"function": function, "arguments": arguments}, inf_nan_mode="constants")
    temporary = tempfile.TemporaryDirectory(prefix="exporter-", ignore_cleanup_errors=True)
    with temporary as folder, tempfile.TemporaryFile() as log:
        request, response = Path(folder) / "request.json", Path(folder) / "response"
        request.write_bytes(call)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", CALL_MODULE, str(request), str(response)],
            # A killed process does not remove its temporary files.
            env={**(os.environ if environment is None else environment), "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else subprocess.DEVNULL,
            stderr=log,
            start_new_session=environment is not None,
            encoding="utf-8",
            errors="replace",
        )

        def kill() -> None:
            if environment is not None:
                signal_group(process.pid, signal.SIGKILL)
            process.kill()

        lines = 0
        try:
            with _limit_time(process.pid, seconds, lambda: lines, kill) as excess:
                for line in process.stdout or ():
                    lines += 1
                    if on_line:
                        on_line(line)
                code = process.wait()
        finally:
            kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        if excess.is_set():
            raise ChildFailure(f"did not finish within {seconds:g} s", None)
        content = response.read_bytes() if response.is_file() else None
        if code == 0 and content is not None:
            return TypeAdapter(returns).validate_json(content)
        if code in _CODES and content is not None:
            message = redact(content.decode(errors="replace"), limit=_MESSAGE_LENGTH)
            raise ExporterError(ExitCode(code), message)
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
        text = log.read().decode("utf-8", errors="replace").strip().splitlines()
    raise ChildFailure(": ".join((describe_exit(code), *text[-1:])), code)


@contextmanager
def _limit_time(
    pid: int, seconds: float | None, read_progress: Callable[[], int], kill: Callable[[], None]
) -> Iterator[threading.Event]:
    """Kill a process at its limit, which begins again with each progress; then set the event."""
    excess, end = threading.Event(), threading.Event()
    if seconds is None:
        yield excess
        return

    def watch() -> None:
        progress, limit = 0, CpuLimit(pid, seconds)
        while not end.wait(limit.interval):
            if read_progress() != progress:
                progress, limit = read_progress(), CpuLimit(pid, seconds)
            elif limit.find_excess():
                excess.set()
                kill()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield excess
    finally:
        end.set()
        thread.join()


def _call(content: bytes) -> tuple[int, bytes]:
    """Return the exit code with the result as JSON, or with the message of the error."""
    call = from_json(content)
    module, _, name = call["function"].partition(":")
    names = call["arguments"]
    try:
        function = getattr(importlib.import_module(module), name)
        hints = get_type_hints(function)
        fields: dict[str, Any] = {each: (hints[each], ...) for each in names}
        # JSON again, in which a list can be a tuple.
        arguments = to_json(names, inf_nan_mode="constants")
        values = create_model("Arguments", **fields).model_validate_json(arguments)
        result = function(**{each: getattr(values, each) for each in names})
    except ExporterError as error:
        return error.exit_code, str(error).encode()
    return ExitCode.OK, to_json(result, inf_nan_mode="constants")


def main() -> None:
    """Serve one call and end without the exit handlers of libraries, which may fail."""
    die_with_parent(os.getppid())
    prefer_for_oom_kill()
    if (memory := os.environ.pop(MEMORY, "")) and IS_LINUX:
        import resource

        with suppress(ValueError):  # the process has a lower limit already
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    request, response = (Path(argument) for argument in sys.argv[1:3])
    code, content = _call(request.read_bytes())
    part = response.with_suffix(".part")
    part.write_bytes(content)
    part.replace(response)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
