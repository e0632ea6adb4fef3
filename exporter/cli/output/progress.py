"""The observer that prints the progress of an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exporter.cli.output.line_progress import LineProgress, QuietProgress
from exporter.cli.output.terminal import is_terminal
from exporter.pipeline.supervisor import BuildObserver


@contextmanager
def observe_progress(*, explain: bool, quiet: bool = False) -> Iterator[BuildObserver]:
    """Yield the observer for this stdout.

    `explain`: Print the reason why each cell runs.
    `quiet`: Print only notes.
    """
    if quiet or not is_terminal():
        yield QuietProgress(explain=explain) if quiet else LineProgress(explain=explain)
        return
    from exporter.cli.output.live_progress import show_progress  # 16 ms, for a terminal only

    with show_progress(explain=explain) as progress:
        yield progress
