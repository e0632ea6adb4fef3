"""What a person sees while models are at work.

In: what `run` tells a `BuildObserver`. Out: lines; on a terminal also a bar and the cells at work, drawn
over again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exporter.build import BuildObserver, Decisions
from exporter.cli.output.summary import format_red_line
from exporter.cli.output.terminal import choose_color, is_terminal, print_line
from exporter.jobs.job import Announcement
from exporter.records.record import Record
from exporter.report import fold_opsets

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


@contextmanager
def observe_progress(
    *, explain: bool, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[BuildObserver]:
    """The watcher for this stdout.

    Args:
        explain: Say of each cell why it runs.
        meanwhile: What to do while the first workers come up, which takes seconds.
    """
    if not is_terminal():
        yield LineProgress(explain=explain, meanwhile=meanwhile)
        return
    from rich.live import Live

    screen = LiveProgress(explain=explain, meanwhile=meanwhile)
    with Live(get_renderable=screen.render, refresh_per_second=8, transient=True) as live:
        screen.live = live
        yield screen


class LineProgress:
    """Red cells as they happen, and a line for each model that is done."""

    def __init__(
        self, *, explain: bool = False, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self._explain = explain
        self._meanwhile = meanwhile
        self._total = 0
        self._done = 0
        self._found: dict[str, Counter[str]] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        """Knows how much there is to do, and says why where that was asked for."""
        self._total = len(decisions.to_run)
        if self._explain:
            for cell, why in decisions.reasons.items():
                self.say(f"{cell} runs: {why}")
            for cell, hit in decisions.hits.items():
                self.say(f"{cell} is taken from the store: {hit.why}")
        if decisions.to_run:
            self._meanwhile()

    def on_announcement(self, announcement: Announcement) -> None:
        """Nothing: without a terminal only what is done is worth a line."""

    def on_cell_done(self, record: Record) -> None:
        """Counts the cell, and says so where it is red."""
        self._done += 1
        self._found.setdefault(record.cell.model, Counter())[record.status.value] += 1
        if record.status.is_red:
            self.say(format_red_line(str(record.cell), record), color=choose_color(record.status))
            if record.log:
                self.say(f"    log: {record.log} in the build folder")

    def on_model_done(self, model: str) -> None:
        """Says what came of the model."""
        found = self._found.get(model, Counter())
        counts = ", ".join(f"{count} {status}" for status, count in found.items())
        self.say(f"[{self._done:{len(str(self._total))}}/{self._total}] {model}: {counts}")

    def on_note(self, message: str) -> None:
        """Says it."""
        self.say(message)

    def say(self, text: str, *, colour: str | None = None) -> None:
        """One line."""
        print_line(text, color=colour)


class LiveProgress(LineProgress):
    """The same lines, above a bar and the cells at work."""

    live: Live | None = None

    def __init__(
        self, *, explain: bool = False, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(explain=explain, meanwhile=meanwhile)
        self._started = time.monotonic()
        self._at_work: dict[tuple[str, int], tuple[Announcement, float]] = {}

    def on_announcement(self, announcement: Announcement) -> None:
        """Shows it until the worker does something else."""
        if announcement.cells:
            worker = (announcement.cells[0].model, announcement.part)
            self._at_work[worker] = (announcement, time.monotonic())

    def on_cell_done(self, record: Record) -> None:
        """The cell is no longer at work."""
        self._at_work = {
            worker: (announcement, since)
            for worker, (announcement, since) in self._at_work.items()
            if announcement.cells != (record.cell,)
        }
        super().on_cell_done(record)

    def on_model_done(self, model: str) -> None:
        """The model is no longer at work."""
        self._at_work = {worker: at for worker, at in self._at_work.items() if worker[0] != model}
        super().on_model_done(model)

    def say(self, text: str, *, colour: str | None = None) -> None:
        """One line above the bar."""
        if self.live is None:
            super().say(text, color=colour)
            return
        from rich.text import Text

        from exporter.core.sanitize import remove_controls

        self.live.console.print(Text(remove_controls(text), style=colour or ""))

    def render(self) -> RenderableType:
        """The bar, and a line for each model at work."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = time.monotonic()
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=max(self._total, 1), completed=self._done, width=40, complete_style="green"
        )
        left = self._total - self._done
        head.add_row(
            bar, f"{self._done}/{self._total} cells, {left} left, {_clock(now - self._started)}"
        )
        table = Table.grid(padding=(0, 2))
        for (model, _), (announcement, since) in self._at_work.items():
            opsets = fold_opsets(cell.opset for cell in announcement.cells)
            table.add_row(f"  {model}", f"opset {opsets}", announcement.stage, _clock(now - since))
        return Group(head, table)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
