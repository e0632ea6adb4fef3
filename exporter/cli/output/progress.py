"""The observer that prints the progress of an export."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exporter.cli.output.line_progress import LineProgress, QuietProgress
from exporter.cli.output.terminal import is_terminal, print_error
from exporter.pipeline.supervisor import BuildObserver

#: The seconds before the first line of a long step, and between two of them.
_FIRST, _NEXT = 10.0, 60.0


@contextmanager
def observe_progress(*, explain: bool, quiet: bool = False) -> Iterator[BuildObserver]:
    """Yield the observer for this stdout.

    `explain`: Print the reason why each cell runs.
    `quiet`: Print only notes.
    """
    if quiet:
        yield QuietProgress(explain=explain)
        return
    if not is_terminal():
        lines = LineProgress(explain=explain)
        with print_late(lines.describe_late):
            yield lines
        return
    from exporter.cli.output.live_progress import show_progress  # 16 ms, for a terminal only

    with show_progress(explain=explain) as progress:
        yield progress


@contextmanager
def print_late(describe: Callable[[], str]) -> Iterator[None]:
    """Print a line to stderr if the block takes more than ten seconds, and again each minute.

    `describe` returns the line, or "" if there is nothing to say now.
    """
    end = threading.Event()

    def wait() -> None:
        start = time.monotonic()
        seconds = _FIRST
        while not end.wait(seconds):
            if text := describe():
                print_error(f"{text} ({time.monotonic() - start:.0f} s)")
            seconds = _NEXT

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
