"""Runtimes in processes of other environments, and the figures of a load.

A device with an `environment` loads its files there; a measured file is loaded in a process that
does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from exporter.manifest import Device
from exporter.runtimes.drivers import DRIVER_FOLDER
from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    FileRequest,
    LoadFigures,
    Placement,
    Value,
)
from exporter.runtimes.drivers.server import read_message, write_message
from exporter.runtimes.session import RuntimeProcessEnd

_SECONDS_TO_EXIT = 5.0


#: The interpreter, the variables, and the library of a provider: a process has at most one.
_Key = tuple[str, tuple[tuple[str, str], ...], str]


class _Server:
    """A process of an environment, with its pipes.

    Starting a process of another environment costs more than most files. So a process loads one
    file after the other, and the forks of a worker share those that run no file: its steps follow
    one another.
    """

    def __init__(self, key: _Key, environment_name: str) -> None:
        self.key = key
        interpreter, variables, _ = key
        # Isolated: neither the variables of this Python nor the current folder add modules.
        command = [interpreter, "-I", "-B", str(DRIVER_FOLDER)]
        if Path(interpreter).name == "node":
            folder = Path(interpreter).parents[1]
            command = [interpreter, str(DRIVER_FOLDER / "web_driver.mjs"), str(folder)]
        pipe = subprocess.PIPE
        for name, value in variables:
            for path in map(Path, value.split(os.pathsep)):
                if path.is_absolute() and not path.exists():
                    problem = f"{path} does not exist; install it, or correct {name} in `variables`"
                    raise DriverFailure("unavailable", problem)
        self.parent = os.getpid()
        self.is_fresh = True
        self.is_busy = False
        try:
            values = {**os.environ, **dict(variables)} if variables else None
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=values)
        except OSError as error:
            problem = f"the interpreter of the environment {environment_name} cannot be started"
            raise DriverFailure("unavailable", problem, error.strerror or "") from error
        weakref.finalize(self, _end, self.process, self.parent)

    def send(self, header: dict[str, Any], values: list[Value] | None = None) -> None:
        """Write a message that has no response."""
        if self.process.stdin is None:
            raise TypeError("the process has no pipes")
        write_message(self.process.stdin, header, values or [])

    def exchange(
        self, header: dict[str, Any], values: list[Value]
    ) -> tuple[dict[str, Any], list[Value]]:
        """Return the response of the process.

        Raises:
            OSError, EOFError, ValueError: if the process ended.
        """
        if self.process.stdout is None:
            raise TypeError("the process has no pipes")
        self.is_busy = True
        self.send(header, values)
        response = read_message(self.process.stdout)
        self.is_busy = False
        return response

    def end(self) -> None:
        """End the process, which responds no more."""
        if self.parent != os.getpid():  # a fork shares it with the process that started it
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
        _end(self.process, self.parent)


def _end(process: subprocess.Popen[bytes], parent: int) -> None:
    """Close the pipes and wait; a process that does not end is killed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # it ended before it read everything
                stream.close()
    if parent != os.getpid():
        return
    try:
        process.wait(_SECONDS_TO_EXIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


#: Processes that run no file.
_IDLE: dict[_Key, list[_Server]] = {}


def start_runtime_processes(devices: Iterable[Device]) -> None:
    """Start a process for each environment of the devices, which imports its runtime meanwhile."""
    for device in devices:
        environment = device.environment
        interpreter = environment.interpreter if environment else ""
        variables = tuple(sorted(device.variables.items()))
        key = (interpreter, variables, device.provider_library)
        if environment and interpreter and key not in _IDLE:
            with contextlib.suppress(DriverFailure, OSError):  # its session reports the reason
                server = _Server(key, environment.name)
                server.send({"import": device.runtime})
                server.is_fresh = False  # forks may use it first
                _IDLE[key] = [server]


def end_runtime_processes() -> None:
    """Kill the idle processes; the next session starts a new one."""
    for server in (server for servers in _IDLE.values() for server in servers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.process.pid, signal.SIGKILL)
        server.end()
    _IDLE.clear()


class RuntimeProcess(Driver):
    """A file loaded by a process of another environment."""

    def __init__(
        self, request: FileRequest, interpreter: str, environment_name: str, *, alone: bool = False
    ) -> None:
        """Load the file in an idle process, or start one.

        `alone`: Whether no other file may have run in the process.

        Raises:
            DriverFailure: as the driver in the process.
            RuntimeProcessEnd: if the process ended.
        """
        self._request, self._environment = request, environment_name
        self._key = (interpreter, request.variables, request.provider_library)
        idle = [] if alone else _IDLE.get(self._key, [])
        self._use(idle.pop() if idle else _Server(self._key, environment_name))
        loaded = self._load()
        self.output_names = tuple(loaded["outputs"])
        self._placement = Placement(*loaded["placement"]) if loaded["placement"] else None

    def find_placement(self) -> Placement | None:
        return self._placement

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        _, outputs = self._send({"inputs": list(inputs)}, list(inputs.values()), "ran the file")
        return outputs

    def measure_load(self, request: FileRequest, inputs: dict[str, Value]) -> LoadFigures:
        """Return the figures of another file; the file of this object is the small one."""
        header = {"measure": request._asdict(), "inputs": list(inputs)}
        figures, _ = self._send(header, list(inputs.values()), "measured the file")
        return LoadFigures(**figures)

    def _use(self, server: _Server) -> None:
        self._server = server
        weakref.finalize(self, _release, server)

    def _load(self) -> dict[str, Any]:
        header = {"load": self._request._asdict()}
        return self._send(header, [], f"loaded {Path(self._request.path).name}")[0]

    def _send(
        self, header: dict[str, Any], values: list[Value], action: str
    ) -> tuple[dict[str, Any], list[Value]]:
        """Return the response of the process.

        If a process with earlier files ends, a new one repeats the message: only its end is due to
        this file.
        """
        try:
            response, outputs = self._server.exchange(header, values)
        except (OSError, EOFError, ValueError) as error:
            self._server.end()
            if self._server.is_fresh and self._server.parent == os.getpid():
                raise self._describe_end(action) from error
            self._use(_Server(self._key, self._environment))
            if "load" not in header:
                self._load()
            return self._send(header, values, action)
        if "kind" in response:
            raise DriverFailure(response["kind"], response["problem"], response["message"])
        return response, outputs

    def _describe_end(self, action: str) -> RuntimeProcessEnd:
        code = self._server.process.returncode
        try:
            reason = f"died by {signal.Signals(-code).name}"
        except ValueError:
            reason = f"ended with exit code {code}"
        subject = f"the runtime process of the environment {self._environment}"
        is_killed = code == -signal.SIGKILL
        return RuntimeProcessEnd(f"{subject} {reason} while it {action}", is_killed=is_killed)


def _release(server: _Server) -> None:
    """Free the file, and keep the process for the next one unless it did not respond."""
    try:
        if server.is_busy:
            raise BrokenPipeError
        server.send({"release": True})
    except (OSError, ValueError):
        server.end()
        return
    server.is_fresh = False
    _IDLE.setdefault(server.key, []).append(server)
