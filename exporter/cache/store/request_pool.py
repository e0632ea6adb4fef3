"""Run requests to a server in threads, and limit the time that a run waits for them.

A thread that waits for a server cannot be ended, so the threads are daemons: the program exits
without them. The pools of `concurrent.futures` wait for theirs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Failures in a row after which the server is not used any more.
MAX_FAILURES = 3


class TimeLimit:
    """The time that a run may wait.

    Args:
        total: The seconds of all waits together.
        silence: The seconds without any response after which a server counts as broken.
    """

    def __init__(self, total: float, silence: float) -> None:
        self.total = total
        self.silence = min(silence, total)
        self.waited = 0.0

    @property
    def remaining(self) -> float:
        """The seconds that are left."""
        return max(0.0, self.total - self.waited)


class Request(Generic[T]):
    """A call that a thread runs."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.is_done = False
        self.results: list[T] = []
        """The result, or nothing if the call failed."""
        self.error: Exception | None = None

    def run(self) -> None:
        """Call the function. Its exception becomes the value of `error`."""
        try:
            self.results.append(self._call())
        except Exception as error:  # noqa: BLE001 - clients of stores have no common base class
            self.error = error


class RequestPool:
    """Threads for the requests of one kind: reads or writes.

    Args:
        limit: The time for all waits, which other pools may share.
        threads: The number of parallel requests.
    """

    def __init__(self, limit: TimeLimit, threads: int) -> None:
        self.problem = ""
        """Why no request runs any more, or ""."""
        self.has_timed_out = False
        self._limit = limit
        self._queue: SimpleQueue[Request[Any]] = SimpleQueue()
        self._changed = threading.Condition()
        #: The first request may import a package, which is not the silence of the server.
        self._last_response = math.inf
        self._max_threads = threads
        self._threads = 0
        self._unfinished = 0
        self._failures = 0

    def submit(self, call: Callable[[], T]) -> Request[T]:
        """Start a request in the background."""
        request = Request(call)
        with self._changed:
            self._unfinished += 1
            if self._threads < min(self._max_threads, self._unfinished):
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._queue.put(request)
        return request

    def note_response(self) -> None:
        """Store the time of a response, such as a part of a large file."""
        with self._changed:
            self._last_response = time.monotonic()
            self._changed.notify_all()

    def wait(self, requests: Sequence[Request[T]]) -> None:
        """Wait for requests, unless the pool stops or the time limit is exceeded."""
        start = time.monotonic()
        end = start + self._limit.remaining
        with self._changed:
            self._last_response = max(self._last_response, start)
            for request in requests:
                while not (request.is_done or self.problem):
                    now = time.monotonic()
                    seconds = min(end, self._last_response + self._limit.silence) - now
                    if seconds <= 0:
                        self.problem = self._describe_timeout(is_total=end <= now)
                        self.has_timed_out = True
                        break
                    self._changed.wait(seconds)
        self._limit.waited += time.monotonic() - start

    def collect(self, requests: Sequence[Request[T]]) -> list[T]:
        """Wait for requests and return their results.

        Raises:
            OSError: if one of them failed or the pool stopped.
        """
        self.wait(requests)
        for request in requests:
            if request.error:
                raise OSError(describe_error(request.error))
        if self.problem:
            raise OSError(self.problem)
        return [result for request in requests for result in request.results]

    def stop(self, problem: str) -> None:
        """Run no further request."""
        with self._changed:
            self.problem = self.problem or problem
            self._changed.notify_all()

    def _describe_timeout(self, *, is_total: bool) -> str:
        if is_total:
            return f"the time limit of {self._limit.total:g} s is exceeded"
        return f"no response for {self._limit.silence:g} s"

    def _work(self) -> None:
        while True:
            request = self._queue.get()
            if not self.problem:
                request.run()
                request.is_done = True
            with self._changed:
                self._unfinished -= 1
                if request.is_done:
                    self._last_response = time.monotonic()
                    self._failures = self._failures + 1 if request.error else 0
                    if self._failures == MAX_FAILURES:
                        self.problem = describe_error(request.error)
                self._changed.notify_all()


def describe_error(error: Exception | None) -> str:
    """Return one line with the text of an exception, or its class if it has none."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__
