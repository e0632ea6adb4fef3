"""Print the summary of an export, also that of an earlier one. A no-op imports only this module."""

from __future__ import annotations

from exporter.cache.noop_snapshot import ExportSummary
from exporter.cli.output.terminal import print_line


def print_summary(summary: ExportSummary, seconds: float | None = None) -> None:
    """Print the summary line by line, and the time of the export in the last one."""
    *lines, (counts, color) = summary.lines
    for line, line_color in lines:
        print_line(line, color=line_color, wraps=True)
    print_line(
        counts if seconds is None else f"{counts} in {_format_duration(seconds)}", color=color
    )


def _format_duration(seconds: float) -> str:
    """Return `8.2 s` or `2:05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
