"""Print the progress of an export."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exporter.cli.output.terminal import is_terminal, print_line
from exporter.jobs import Announcement
from exporter.manifest.syntax.values import format_opsets
from exporter.pipeline.decisions import Decisions
from exporter.pipeline.supervisor import BuildObserver
from exporter.records.record import CellId, Record, Status
from exporter.report.rows.cells import group_by_opset

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


@contextmanager
def observe_progress(*, explain: bool, quiet: bool = False) -> Iterator[BuildObserver]:
    """Yield the observer for this stdout.

    `explain`: Print the reason why each cell runs.
    `quiet`: Print only notes.
    """
    if quiet or not is_terminal():
        yield QuietProgress(explain=explain) if quiet else LineProgress(explain=explain)
        return
    from rich.live import Live

    progress = LiveProgress(explain=explain)
    with Live(get_renderable=progress.render, refresh_per_second=8, transient=True) as live:
        progress.live = live
        yield progress


class LineProgress(BuildObserver):
    """Prints a line for each finished model. The summary has the red cells."""

    def __init__(self, *, explain: bool = False) -> None:
        self._explain = explain
        self.cells: set[CellId] = set()
        self._total = 0
        self._done = 0
        self._red = 0
        self._has_finished_model = False
        self._restored = 0
        self._statuses: dict[str, Counter[str]] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        """Store the number of cells; print the reasons if requested."""
        self._total = len(decisions.to_run)
        self._restored = len(decisions.hits)
        self.cells = {*decisions.reasons, *decisions.hits}
        if self._explain:
            for verb, reasons in (
                ("runs", decisions.reasons),
                ("is restored from the store", decisions.hits),
            ):
                groups = group_by_opset(reasons.items(), lambda each: each[0], lambda each: each[1])
                for group in groups:
                    self.print(f"{group.label} {verb}: {group.first[1]}")

    def on_cell_done(self, record: Record) -> None:
        self._done += 1
        self._statuses.setdefault(record.cell.model, Counter())[record.status.value] += 1
        self._red += record.status.is_red

    def on_model_done(self, model: str) -> None:
        """Print the number of the model's cells per status."""
        self._has_finished_model = True
        statuses = self._statuses.get(model, Counter())
        counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
        color = "red" if any(Status(status).is_red for status in statuses) else None
        line = f"[{self._done:{len(str(self._total))}}/{self._total}] {model}: {counts}"
        self.print(line, color=color)

    def on_note(self, message: str) -> None:
        self.print(message)

    def print(self, text: str, *, color: str | None = None) -> None:
        print_line(text, color=color)


class QuietProgress(LineProgress):
    """Prints notes, and the reasons if requested."""

    def on_model_done(self, model: str) -> None:
        """Do nothing: the summary has the counts."""


class LiveProgress(LineProgress):
    """Prints the same lines above a bar and the cells in progress."""

    live: Live | None = None

    def __init__(self, *, explain: bool = False) -> None:
        super().__init__(explain=explain)
        self._started = time.monotonic()
        self._in_progress: dict[tuple[str, int], tuple[Announcement, float]] = {}

    def on_announcement(self, announcement: Announcement) -> None:
        """Show the step until the worker announces another one."""
        if announcement.cells:
            worker = (announcement.cells[0].model, announcement.part)
            self._in_progress[worker] = (announcement, time.monotonic())

    def on_cell_done(self, record: Record) -> None:
        self._in_progress = {
            worker: (announcement, since)
            for worker, (announcement, since) in self._in_progress.items()
            if announcement.cells != (record.cell,)
        }
        super().on_cell_done(record)

    def on_model_done(self, model: str) -> None:
        self._in_progress = {
            worker: step for worker, step in self._in_progress.items() if worker[0] != model
        }
        super().on_model_done(model)

    def print(self, text: str, *, color: str | None = None) -> None:
        """Print one line above the bar."""
        if self.live is None:
            super().print(text, color=color)
            return
        from rich.text import Text

        from exporter.core.text import remove_controls

        self.live.console.print(Text(remove_controls(text), style=color or ""))

    def render(self) -> RenderableType:
        """Return the bar, and a line for each model in progress."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = time.monotonic()
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=max(self._total, 1),
            completed=self._done,
            width=24,
            complete_style="red" if self._red else "green",
        )
        remaining = self._total - self._done
        texts = [f"{self._done}/{self._total} cells"]
        texts += [f"{self._red} red"] if self._red else []
        texts += [f"{self._restored} restored"] if self._restored else []
        texts.append(_format_clock(now - self._started))
        if self._has_finished_model and remaining:
            seconds = (now - self._started) / self._done * remaining
            texts.append(f"about {_format_clock(seconds)} left")
        else:
            texts.append(f"{remaining} left")
        head.add_row(bar, ", ".join(texts))
        table = Table.grid(padding=(0, 2))
        for (model, _), (announcement, since) in self._in_progress.items():
            opsets = format_opsets(cell.opset for cell in announcement.cells)
            clock = _format_clock(now - since)
            table.add_row(f"  {model}", f"opset {opsets}", announcement.stage, clock)
        if not self._in_progress and not self._done and self._total:
            table.add_row("  starting PyTorch")
        return Group(head, table)


def _format_clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
