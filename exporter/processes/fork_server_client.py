"""Start workers as forks of a process that has imported torch (Linux).

Input: the path of a job. Output: a `WorkerProcess`.

The fork server (`exporter.worker.fork_server`) imports the packages of all workers once and forks
for each job. A start then costs milliseconds. Commands and events are lines of JSON.

If the fork server dies, the kernel kills its children. Each child counts as killed, and the next
job gets a new fork server. If no fork server can start, each job gets a new Python.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from exporter.processes.spawner import (
    ProcessStarter,
    Spawner,
    WorkerCommand,
    WorkerProcess,
    signal_group,
)

FORK_SERVER_COMMAND = (sys.executable, "-P", "-m", "exporter.worker.fork_server")

_POLL_INTERVAL = 60.0  # seconds between two checks of a fork server that sends no events


class ForkServerStarter:
    """Starts workers by a fork server, which the first start creates.

    Args:
        environment: The complete environment of the fork server and the workers.
        command: The command line of the fork server.
        fallback: Starts the workers if no fork server can start.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        command: Sequence[str] = FORK_SERVER_COMMAND,
        fallback: ProcessStarter | None = None,
    ) -> None:
        self._environment = dict(environment)
        self._command = command
        self._fallback = fallback or Spawner(environment)
        self._server: ForkServerClient | None = None

    def prepare(self) -> None:
        """Start the fork server, which imports while the caller does other work."""
        self._get_server()

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker. The first call waits until the fork server is ready."""
        server = self._get_server()
        server.wait_until_ready()
        worker = server.start(command)
        return worker if worker is not None else self._fallback.start(command)

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until a worker exits."""
        if self._server is not None and self._server.is_alive():
            self._server.handle_events(seconds)
        else:
            time.sleep(seconds)

    def is_available(self) -> bool:
        """Return True if a fork server can start. It runs until `close`."""
        if self._server is None:
            self._get_server().wait_until_ready()
        return self._server is not None and self._server.is_alive()

    def _get_server(self) -> ForkServerClient:
        """Return the fork server, or a new one if it is dead."""
        if self._server is None or not self._server.is_alive():
            self.close()
            self._server = ForkServerClient(self._command, self._environment)
        return self._server

    def close(self) -> None:
        """End the fork server and its workers."""
        if self._server is not None:
            self._server.close()
            self._server = None


class ForkServerClient:
    """One fork server process with its pipes and workers."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
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

    def is_alive(self) -> bool:
        """Return True if the fork server can start workers."""
        return not self._is_lost and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait until the fork server is ready or exits."""
        while not self._is_ready and not self._is_lost:
            self.handle_events(_POLL_INTERVAL)

    def start(self, command: WorkerCommand) -> _ForkedWorker | None:
        """Fork one worker, or return None if the fork server is dead."""
        self._count += 1
        worker = self._workers[self._count] = _ForkedWorker(self)
        message = {
            "start": self._count,
            "job": str(command.job),
            "log": str(command.log),
            "folder": str(command.folder),
        }
        try:
            os.write(self._commands, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            self._mark_lost()
        while not worker.pid and not self._is_lost:
            self.handle_events(_POLL_INTERVAL)
        return worker if worker.pid else None

    def handle_events(self, seconds: float) -> None:
        """Handle all events of the fork server.

        Args:
            seconds: The longest wait for the first event.
        """
        while not self._is_lost and select.select([self._events], [], [], seconds)[0]:
            seconds = 0.0
            data = os.read(self._events, 1 << 16)
            if not data:
                self._mark_lost()
            *lines, self._partial_line = (self._partial_line + data).split(b"\n")
            for line in lines:
                event: Mapping[str, int] = json.loads(line)
                if "pid" in event:
                    self._workers[event["started"]].pid = event["pid"]
                elif "ended" in event:
                    self._workers.pop(event["ended"]).code = event["code"]
                else:
                    self._is_ready = True

    def close(self) -> None:
        """Kill the fork server. The kernel kills its children."""
        self._process.kill()
        self._process.wait()
        self._mark_lost()
        os.close(self._commands)
        os.close(self._events)

    def _mark_lost(self) -> None:
        """Mark all workers as killed: the fork server is dead, and the kernel killed them."""
        self._is_lost = True
        for worker in self._workers.values():
            worker.signal_group(signal.SIGKILL)
            worker.code = -signal.SIGKILL
        self._workers.clear()


class _ForkedWorker:
    """A worker. The fork server kills its process group before it reports the exit."""

    def __init__(self, server: ForkServerClient) -> None:
        self._server = server
        self.pid = 0
        self.code: int | None = None

    def poll(self) -> int | None:
        self._server.handle_events(0.0)
        return self.code

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None and (remaining := until - time.monotonic()) > 0:
            self._server.handle_events(min(remaining, _POLL_INTERVAL))
        return self.code is not None

    def signal_group(self, number: signal.Signals) -> None:
        if self.pid and self.code is None:
            signal_group(self.pid, number)
