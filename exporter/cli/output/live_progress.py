"""The progress of an export in a terminal: a bar, and the cells in progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from exporter.cli.output.line_progress import LineProgress
from exporter.core.text import remove_controls
from exporter.manifest.syntax.values import format_opsets


@contextmanager
def show_progress(*, explain: bool) -> Iterator[LineProgress]:
    """Yield the observer; `explain`: Print the reason why each cell runs."""
    progress = LiveProgress(explain=explain)
    with Live(get_renderable=progress.render, refresh_per_second=8, transient=True) as live:
        progress.live = live
        yield progress


class LiveProgress(LineProgress):
    """Prints the same lines above a bar and the cells in progress."""

    live: Live | None = None

    def __init__(self, *, explain: bool = False) -> None:
        super().__init__(explain=explain)
        self._started = time.monotonic()

    def print(self, text: str, *, color: str | None = None) -> None:
        """Print one line above the bar."""
        if self.live is None:
            super().print(text, color=color)
            return
        self.live.console.print(Text(remove_controls(text), style=color or ""))

    def render(self) -> RenderableType:
        """Return the bar, and a line for each model in progress."""
        now = time.monotonic()
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=max(self.total, 1),
            completed=self.done,
            width=24,
            complete_style="red" if self.red else "green",
        )
        remaining = self.total - self.done
        texts = [f"{self.done}/{self.total} cells"]
        if self.red:
            texts.append(f"{self.red} red")
        if self.restored:
            texts.append(f"{self.restored} restored")
        texts.append(_format_clock(now - self._started))
        if self.has_finished_model and remaining:
            seconds = (now - self._started) / self.done * remaining
            texts.append(f"about {_format_clock(seconds)} left")
        else:
            texts.append(f"{remaining} left")
        head.add_row(bar, ", ".join(texts))
        table = Table.grid(padding=(0, 2))
        for (model_id, _), (announcement, since) in self.in_progress.items():
            opsets = format_opsets(cell.opset for cell in announcement.cells)
            clock = _format_clock(now - since)
            table.add_row(f"  {model_id}", f"opset {opsets}", announcement.stage, clock)
        if not self.in_progress and not self.done and self.total:
            table.add_row("  starting PyTorch")
        return Group(head, table)


def _format_clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
