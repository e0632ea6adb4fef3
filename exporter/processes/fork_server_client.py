"""Start workers as forks of a process that has imported torch (Linux).

The fork server (`exporter.worker.fork_server`) imports the packages of all workers once and forks
for each job. A start then costs milliseconds. Commands and events are lines of JSON.

If the fork server ends, the kernel kills its children: they are lost and can run again, because
another model may be the reason. The next job gets a new fork server. If no fork server can start,
or three were lost, each job gets a new Python.

A model can stop the fork server, or write to its pipes through `/proc`. So each event begins with a
secret that forks do not have, and each wait has a deadline. After an unknown line or a deadline the
fork server is killed and counts as lost.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from exporter.core.system import IS_LINUX
from exporter.processes.lifetime import hide_memory, list_descendants
from exporter.processes.worker_variables import make_worker_environment

WORKER_COMMAND = (sys.executable, "-P", "-m", "exporter.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """The arguments of a worker."""

    job: Path
    log: Path
    """The output is appended to this file."""
    folder: Path
    """The current directory."""
    captures: bool = False
    """Whether it captures a program, for which a fork server then imports the modules once."""


class WorkerProcess(Protocol):
    """A started worker."""

    @property
    def pid(self) -> int:
        """The worker, which leads a process group."""

    @property
    def is_lost(self) -> bool:
        """Whether the worker ended because the fork server did."""

    def poll(self) -> int | None:
        """Return the exit code, less than 0 for a signal, or None while the worker runs."""

    def wait(self, seconds: float) -> bool:
        """Wait for the exit and return True if the worker exited in time."""

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the worker and its child processes."""


class ProcessStarter:
    """Starts a new Python for each worker, on every platform.

    `environment`: The complete environment of the workers.
    `command`: The command line, to which the path of the job is added.
    """

    def __init__(
        self, environment: Mapping[str, str], command: Sequence[str] = WORKER_COMMAND
    ) -> None:
        self._environment = dict(environment)
        self._command = command

    def prepare(self) -> None:
        """Begin the preparations of the first start. `close` is necessary in any case."""

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker."""
        with command.log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, str(command.job)],
                cwd=command.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _SpawnedWorker(process)

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until a worker exits."""
        time.sleep(seconds)

    def close(self) -> None:
        """End all processes that this object keeps."""


class _SpawnedWorker:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._descendants: set[int] = set()
        self.pid = process.pid

    @property
    def is_lost(self) -> bool:
        return False

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal_group(self, number: signal.Signals) -> None:
        # Some may have left the group, and no fork server adopts them when the worker ends.
        self._descendants.update(list_descendants(self.pid))
        signal_group(self.pid, number)
        for pid in self._descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if any of its processes exists."""
    # macOS refuses to signal a group of zombies: PermissionError.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


FORK_SERVER_COMMAND = (sys.executable, "-P", "-m", "exporter.worker.fork_server")

#: Seconds in which a fork server imports its modules, from a slow disk.
_READY_LIMIT = 600.0
#: Seconds in which a fork server that is ready responds.
_RESPONSE_LIMIT = 60.0
#: Seconds without an event until the client requests one.
_QUIET = 5.0
#: Bytes of an event.
_MAX_EVENT = 1 << 12
#: After this number of lost fork servers, a model ends them intentionally.
_MAX_LOSSES = 3
_SECRET_BYTES = 16


class ForkServerStarter(ProcessStarter):
    """Starts workers by a fork server, which the first start creates.

    `server`: The command line of the fork server.
    `command`: That of a worker if no fork server can start.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        server: Sequence[str] = FORK_SERVER_COMMAND,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        super().__init__(environment, command)
        self._server_command = server
        self._server: ForkServerClient | None = None
        self._losses = 0

    def prepare(self) -> None:
        """Start the fork server, which imports while the caller does other work."""
        if self._losses < _MAX_LOSSES:
            self._get_server()

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker. The first call waits until the fork server is ready."""
        worker = None
        if self._losses < _MAX_LOSSES:
            server = self._get_server()
            server.wait_until_ready()
            worker = server.start(command)
        return worker if worker is not None else super().start(command)

    def sleep(self, seconds: float) -> None:
        if self._server is not None and self._server.is_alive():
            self._server.handle_events(seconds)
        else:
            super().sleep(seconds)

    def is_available(self) -> bool:
        """Return True if a fork server can start. It runs until `close`."""
        if self._server is None:
            self._get_server().wait_until_ready()
        return self._server is not None and self._server.is_alive()

    def _get_server(self) -> ForkServerClient:
        """Return the fork server, or a new one if it is dead."""
        if self._server is None or not self._server.is_alive():
            self._losses += self._server is not None
            self.close()
            self._server = ForkServerClient(self._server_command, self._environment)
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class ForkServerClient:
    """One fork server process with its pipes and workers."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        hide_memory()
        server_input, self._commands = os.pipe()
        self._events, server_output = os.pipe()
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=server_input,
            stdout=server_output,
            # A message of an import appears again in the log of a worker.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(server_input)
        os.close(server_output)
        self._partial_line = b""
        self._is_ready = False
        self._is_lost = False
        self._workers: dict[int, _ForkedWorker] = {}
        self._count = 0
        self._secret = secrets.token_hex(_SECRET_BYTES).encode()
        self._last_event = self._last_command = time.monotonic()
        self._send(self._secret)

    def is_alive(self) -> bool:
        """Return True if the fork server can start workers."""
        return not self._is_lost and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait until the fork server is ready or lost."""
        self._wait_for(lambda: self._is_ready, _READY_LIMIT)

    def start(self, command: WorkerCommand) -> _ForkedWorker | None:
        """Fork one worker, or return None if the fork server is lost."""
        self._count += 1
        worker = self._workers[self._count] = _ForkedWorker(self)
        message = {
            "start": self._count,
            "job": str(command.job),
            "log": str(command.log),
            "folder": str(command.folder),
            "captures": command.captures,
        }
        self._send(json.dumps(message).encode())
        self._wait_for(lambda: worker.pid > 0, _RESPONSE_LIMIT)
        return worker if worker.pid else None

    def handle_events(self, seconds: float) -> None:
        """Handle all events of the fork server; wait up to some seconds for the first."""
        seconds = min(seconds, _QUIET)
        while not self._is_lost and select.select([self._events], [], [], seconds)[0]:
            seconds = 0.0
            data = os.read(self._events, 1 << 16)
            *lines, self._partial_line = (self._partial_line + data).split(b"\n")
            is_valid = all(self._handle_event(line) for line in lines)
            if not data or not is_valid or len(self._partial_line) > _MAX_EVENT:
                self._mark_lost()
        self._require_response()

    def _handle_event(self, line: bytes) -> bool:
        """Handle an event, or return False if the line is not from the fork server."""
        secret, _, text = line.partition(b" ")
        if not secrets.compare_digest(secret, self._secret):
            return False
        self._last_event = time.monotonic()
        event: Mapping[str, int] = json.loads(text)
        if "pid" in event:
            self._workers[event["started"]].pid = event["pid"]
        elif "ended" in event:
            self._workers.pop(event["ended"]).code = event["code"]
        elif "ready" in event:
            self._is_ready = True
        return True

    def _require_response(self) -> None:
        """Request an event if there was none for some time; kill the server after a deadline."""
        now = time.monotonic()
        if self._is_lost or not self._is_ready or not self._workers:
            return
        if self._last_command > self._last_event:
            if now - self._last_command > _RESPONSE_LIMIT:
                self._mark_lost()
        elif now - self._last_event > _QUIET:
            self._send(b'{"report": 1}')

    def _wait_for(self, is_done: Callable[[], bool], limit: float) -> None:
        until = time.monotonic() + limit
        while not is_done() and not self._is_lost:
            self.handle_events(_QUIET)
            if not is_done() and time.monotonic() > until:
                self._mark_lost()

    def _send(self, message: bytes) -> None:
        self._last_command = time.monotonic()
        try:
            os.write(self._commands, message + b"\n")
        except BrokenPipeError:
            self._mark_lost()

    def close(self) -> None:
        """Kill the fork server. The kernel kills its children."""
        self._mark_lost()
        with suppress(subprocess.TimeoutExpired):  # the kernel cannot end it: a broken disk
            self._process.wait(_RESPONSE_LIMIT)
        os.close(self._commands)
        os.close(self._events)

    def _mark_lost(self) -> None:
        """Kill the fork server, also a stopped one, and mark all workers as lost."""
        self._is_lost = True
        self._process.kill()
        for worker in self._workers.values():
            worker.signal_group(signal.SIGKILL)
            worker.is_lost = True
            worker.code = -signal.SIGKILL
        self._workers.clear()


class _ForkedWorker:
    """A worker. The fork server kills its process group before it reports the exit."""

    def __init__(self, server: ForkServerClient) -> None:
        self._server = server
        self.pid = 0
        self.code: int | None = None
        self.is_lost = False

    def poll(self) -> int | None:
        self._server.handle_events(0.0)
        return self.code

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None and (remaining := until - time.monotonic()) > 0:
            self._server.handle_events(remaining)
        return self.code is not None

    def signal_group(self, number: signal.Signals) -> None:
        if self.pid and self.code is None:
            signal_group(self.pid, number)


def make_starter(environment: Mapping[str, str], variables: Iterable[str] = ()) -> ProcessStarter:
    """Return a fork server on Linux, because its kernel ends children with their parent.

    `variables`: The names of more variables for workers, with wildcards.
    """
    return make_worker_starter(make_worker_environment(environment, variables))


def make_worker_starter(worker_environment: Mapping[str, str]) -> ProcessStarter:
    """Return the starter of workers that have exactly these variables."""
    return (ForkServerStarter if IS_LINUX else ProcessStarter)(worker_environment)
