"""A driver in a process of another environment, which ends with this object."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporter.runtimes.drivers import DRIVER_FOLDER
from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    DriverPlacement,
    FileRequest,
    Value,
)
from exporter.runtimes.drivers.frames import read_message, write_message
from exporter.runtimes.drivers.load_figures import LoadFigures
from exporter.runtimes.protocol import RuntimeProcessEnd

_SECONDS_TO_EXIT = 5.0


class RuntimeProcess(Driver):
    """A file loaded by a process of another environment."""

    def __init__(self, request: FileRequest, interpreter: str, environment: str) -> None:
        """Start the process and load the file.

        Args:
            request: The file and its settings.
            interpreter: The Python of the environment.
            environment: The name of the environment, for messages.

        Raises:
            DriverFailure: as the driver in the process.
            RuntimeProcessEnd: if the process ended.
        """
        self._environment = environment
        # Isolated: neither the variables of this Python nor the current folder add modules.
        command = [interpreter, "-I", "-B", str(DRIVER_FOLDER)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        except OSError as error:
            problem = f"the interpreter of the environment {environment} cannot be started"
            raise DriverFailure("unavailable", problem, error.strerror or "") from error
        weakref.finalize(self, _end, self._process)
        loaded, _ = self._send(request._asdict(), [], f"loaded {Path(request.path).name}")
        self.output_names = tuple(loaded["outputs"])
        self._placement = DriverPlacement(*loaded["placement"]) if loaded["placement"] else None

    def find_placement(self) -> DriverPlacement | None:
        """Return the placement of the nodes, or None if the runtime does not report it."""
        return self._placement

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        """Return the outputs in the order of the file.

        Raises:
            DriverFailure: `run`, if the runtime fails on these inputs.
            RuntimeProcessEnd: if the process ended.
        """
        _, outputs = self._send({"inputs": list(inputs)}, list(inputs.values()), "ran the file")
        return outputs

    def measure_load(self, request: FileRequest, inputs: dict[str, Value]) -> LoadFigures:
        """Return the figures of another file; the file of this object is the small one.

        Raises:
            DriverFailure: if the runtime does not load or run the file.
            RuntimeProcessEnd: if the process ended.
        """
        header = {"measure": request._asdict(), "inputs": list(inputs)}
        figures, _ = self._send(header, list(inputs.values()), "measured the file")
        return LoadFigures(**figures)

    def _send(
        self, header: dict[str, Any], values: list[Value], action: str
    ) -> tuple[dict[str, Any], list[Value]]:
        """Return the response of the process."""
        source, target = self._process.stdin, self._process.stdout
        if source is None or target is None:
            raise TypeError("the process has no pipes")
        try:
            write_message(source, header, values)
            response, outputs = read_message(target)
        except (OSError, EOFError, ValueError) as error:
            raise self._describe_end(action) from error
        if "kind" in response:
            raise DriverFailure(response["kind"], response["problem"], response["message"])
        return response, outputs

    def _describe_end(self, action: str) -> RuntimeProcessEnd:
        _end(self._process)
        code = self._process.returncode
        try:
            reason = f"died by {signal.Signals(-code).name}"
        except ValueError:
            reason = f"ended with exit code {code}"
        subject = f"the runtime process of the environment {self._environment}"
        is_killed = code == -signal.SIGKILL
        return RuntimeProcessEnd(f"{subject} {reason} while it {action}", is_killed=is_killed)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes and wait; a process that does not end is killed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # it ended before it read everything
                stream.close()
    try:
        process.wait(_SECONDS_TO_EXIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
