"""Print the progress of an export."""

from __future__ import annotations

import time
from collections import Counter

from exporter.cli.output.terminal import print_line
from exporter.core.text import join_names, pluralize
from exporter.jobs import Announcement
from exporter.manifest.syntax.values import format_opsets
from exporter.pipeline.decisions import Decisions
from exporter.pipeline.supervisor import BuildObserver
from exporter.records.record import CellId, Record, Status
from exporter.report.rows.cells import group_by_opset

#: The number of steps that a line lists.
_LISTED = 4


class LineProgress(BuildObserver):
    """Prints a line for each finished model. The summary has the red cells."""

    def __init__(self, *, explain: bool = False) -> None:
        self._explain = explain
        self.cells: set[CellId] = set()
        self.total = 0
        self.done = 0
        self.red = 0
        self.has_finished_model = False
        self.restored = 0
        self._statuses: dict[str, Counter[str]] = {}
        #: The step of each worker, by its model and its part, and the time of its begin.
        self.in_progress: dict[tuple[str, int], tuple[Announcement, float]] = {}

    def on_decisions(self, decisions: Decisions) -> None:
        """Store the number of cells; print the reasons if requested."""
        self.total = len(decisions.to_run)
        self.restored = len(decisions.hits)
        self.cells = {*decisions.reasons, *decisions.hits}
        if self._explain:
            for verb, reasons in (
                ("runs", decisions.reasons),
                ("is restored from the store", decisions.hits),
            ):
                groups = group_by_opset(reasons.items(), lambda each: each[0], lambda each: each[1])
                for group in groups:
                    self.print(f"{group.label} {verb}: {group.first[1]}")

    def on_announcement(self, announcement: Announcement) -> None:
        """Store the step until the worker announces another one."""
        if announcement.cells:
            worker = (announcement.cells[0].model, announcement.part)
            step = (announcement, time.monotonic())
            self.in_progress = {**self.in_progress, worker: step}  # a thread reads it

    def on_cell_done(self, record: Record) -> None:
        self.in_progress = {
            worker: (announcement, since)
            for worker, (announcement, since) in self.in_progress.items()
            if announcement.cells != (record.cell,)
        }
        self.done += 1
        self._statuses.setdefault(record.cell.model, Counter())[record.status.value] += 1
        self.red += record.status.is_red

    def on_model_done(self, model: str) -> None:
        """Print the number of the model's cells per status."""
        self.has_finished_model = True
        self.in_progress = {
            worker: step for worker, step in self.in_progress.items() if worker[0] != model
        }
        statuses = self._statuses.get(model, Counter())
        counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
        color = "red" if any(Status(status).is_red for status in statuses) else None
        line = f"[{self.done:{len(str(self.total))}}/{self.total}] {model}: {counts}"
        self.print(line, color=color)

    def describe_late(self) -> str:
        """Return what runs now: `1 of 4 cells; net 17..18: parity`; "" before the first job."""
        steps = [
            f"{model} {format_opsets(cell.opset for cell in announcement.cells)}: "
            f"{announcement.stage}"
            for (model, _), (announcement, _since) in self.in_progress.items()
        ]
        running = join_names(steps, _LISTED) if steps else "starting PyTorch"
        return f"{self.done} of {pluralize(self.total, 'cell')}; {running}" if self.total else ""

    def on_note(self, message: str) -> None:
        self.print(message)

    def print(self, text: str, *, color: str | None = None) -> None:
        print_line(text, color=color)


class QuietProgress(LineProgress):
    """Prints notes, and the reasons if requested."""

    def on_model_done(self, model: str) -> None:
        """Do nothing: the summary has the counts."""
