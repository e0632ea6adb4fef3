"""Run a program to its end and pass its output on, line by line."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from exporter.processes.spawner import signal_group

#: Seconds in which an interrupted program stores its finished results.
_GRACE = 10.0


def run_program(
    command: Sequence[str], environment: Mapping[str, str], on_line: Callable[[str], None]
) -> int:
    """Run a program and return its exit code, less than 0 for a signal.

    Args:
        command: The program and its arguments.
        environment: All variables of the process.
        on_line: Called with each line of stdout and stderr.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        for line in process.stdout or ():
            on_line(line.rstrip("\n"))
        return process.wait()
    except BaseException:
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
