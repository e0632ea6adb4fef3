"""Workers that start warm: forked from a process that has torch loaded. For Linux.

In: the path of a job. Out: a `WorkerProcess` process. The nursery (`exporter.worker.fork_server`) imports
once what every worker needs, and forks for each job; a start costs milliseconds then. Orders go to
it as lines of JSON, and the ends of its children come back the same way.

When the nursery itself dies, the kernel ends its children: each counts as killed, and the next job
gets another nursery. Where no nursery comes up, each job gets a Python of its own.
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

from exporter.processes.spawn import (
    ProcessStarter,
    Spawner,
    WorkerCommand,
    WorkerProcess,
    signal_group,
)

NURSERY = (sys.executable, "-P", "-m", "exporter.worker.fork_server")

_PATIENCE = 60.0  # seconds between two looks at a nursery that says nothing


class ForkServerStarter:
    """Starts workers from a nursery, which it starts when the first is wanted.

    Args:
        environment: The environment of the nursery and every worker, complete.
        command: What to start as the nursery.
        instead: Starts the workers where no nursery comes up.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        command: Sequence[str] = NURSERY,
        instead: ProcessStarter | None = None,
    ) -> None:
        self._environment = dict(environment)
        self._command = command
        self._instead = instead or Spawner(environment)
        self._nursery: ForkServerClient | None = None

    def prepare(self) -> None:
        """Starts the nursery, which imports while others decide what there is to do."""
        self._living()

    def start(self, start: WorkerCommand) -> WorkerProcess:
        """Starts one; waits for the nursery to be ready, the first time."""
        nursery = self._living()
        nursery.wait_until_ready()
        child = nursery.start(start)
        return child if child is not None else self._instead.start(start)

    def rest(self, seconds: float) -> None:
        """Waits so long, or less where a worker ends."""
        if self.is_alive() and self._nursery is not None:
            self._nursery.listen(seconds)
        else:
            time.sleep(seconds)

    def is_warm(self) -> bool:
        """Whether a nursery comes up here; it is left running until `close`."""
        if self._nursery is None:
            self._living().wait_until_ready()
        return self.is_alive()

    def is_alive(self) -> bool:
        """Whether a nursery runs."""
        return self._nursery is not None and self._nursery.is_alive()

    def _living(self) -> ForkServerClient:
        """The nursery, or another one where it died."""
        if self._nursery is None or not self._nursery.is_alive():
            self.close()
            self._nursery = ForkServerClient(self._command, self._environment)
        return self._nursery

    def close(self) -> None:
        """Ends the nursery, and with it whatever still runs."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None


class ForkServerClient:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        orders, self._orders = os.pipe()
        self._words, words = os.pipe()
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=orders,
            stdout=words,
            # What it says while it imports, a worker says again in its own log.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(orders)
        os.close(words)
        self._rest = b""
        self._is_ready = False
        self._is_lost = False
        self._children: dict[int, _Child] = {}
        self._count = 0

    def is_alive(self) -> bool:
        """Whether more can be started."""
        return not self._is_lost and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Waits for its first word, or for its end."""
        while not self._is_ready and not self._is_lost:
            self.listen(_PATIENCE)

    def start(self, start: WorkerCommand) -> _Child | None:
        """Forks one child; None where nobody is there to fork it."""
        self._count += 1
        child = self._children[self._count] = _Child(self)
        order = {
            "start": self._count,
            "job": str(start.job),
            "log": str(start.log),
            "folder": str(start.folder),
        }
        try:
            os.write(self._orders, json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            self._lose_all()
        while not child.pid and not self._is_lost:
            self.listen(_PATIENCE)
        return child if child.pid else None

    def listen(self, seconds: float) -> None:
        """Takes in what the nursery says, waiting up to so long for the first word."""
        while not self._is_lost and select.select([self._words], [], [], seconds)[0]:
            seconds = 0.0
            data = os.read(self._words, 1 << 16)
            if not data:
                self._lose_all()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def close(self) -> None:
        """Ends it; children die with it."""
        self._process.kill()
        self._process.wait()
        self._lose_all()
        os.close(self._orders)
        os.close(self._words)

    def _lose_all(self) -> None:
        """Nobody is left to tell of the children: the kernel ended them with the nursery."""
        self._is_lost = True
        for child in self._children.values():
            child.signal_group(signal.SIGKILL)
            child.code = -signal.SIGKILL
        self._children.clear()

    def _hear(self, said: Mapping[str, int]) -> None:
        if "pid" in said:
            self._children[said["started"]].pid = said["pid"]
        elif "ended" in said:
            self._children.pop(said["ended"]).code = said["code"]
        else:
            self._is_ready = True


class _Child:
    """A worker; the nursery has ended its group by the time that its own end is told."""

    def __init__(self, nursery: ForkServerClient) -> None:
        self._nursery = nursery
        self.pid = 0
        self.code: int | None = None

    def poll(self) -> int | None:
        self._nursery.listen(0.0)
        return self.code

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None and (left := until - time.monotonic()) > 0:
            self._nursery.listen(min(left, _PATIENCE))
        return self.code is not None

    def signal_group(self, number: signal.Signals) -> None:
        if self.pid and self.code is None:
            signal_group(self.pid, number)
