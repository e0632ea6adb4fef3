"""Print lines without terminal controls, with colors if stdout is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.core.errors import Problem
from exporter.core.text import escape_ci_commands, read_command, remove_controls, replace_commands

if TYPE_CHECKING:  # `--version` must not import pydantic
    from exporter.core.errors import ExportSummary
    from exporter.core.frozen_model import FrozenModel
    from exporter.records.record import Status

#: The least columns for a wrapped column.
_NARROW = 24

#: The project's folder, for the setting `command`.
PROJECT_ROOT = ContextVar("PROJECT_ROOT", default=Path())


def print_line(text: str = "", *, color: str | None = None, wraps: bool = False) -> None:
    """Print one line or more to stdout; `wraps` breaks long lines of a terminal at words."""
    text = sanitize_for_terminal(text)
    if wraps and (width := find_width()):
        text = "\n".join(_wrap(line, width) for line in text.split("\n"))
    click.echo(click.style(text, fg=color) if color else text, color=has_color())


def _wrap(line: str, width: int) -> str:
    """Return a line within the width; its other parts are indented below it."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    parts = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(parts)


def print_table(rows: Iterable[Sequence[str]], indent: str = "") -> None:
    """Print rows with aligned columns, within the width of a terminal."""
    width = find_width()
    for line in fit_columns(rows, width - len(indent) if width else None):
        print_line(f"{indent}{line}")


def print_problem(problem: Problem) -> None:
    """Print a problem on stderr, with the line of its file if it is known."""
    print_error(str(problem))
    for line in problem.excerpt.splitlines():
        print_error(f"    {line}")


def print_document(document: FrozenModel) -> None:
    """Print the document to stdout, without the sanitizing of lines: JSON escapes controls."""
    click.echo(document.to_json(), nl=False)


def fold_log(command: str, title: str) -> None:
    """Begin or end lines that the log of a GitHub job shows folded, below their annotations."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        click.echo(f"::{command}::{title}")


def print_error(text: str) -> None:
    click.echo(sanitize_for_terminal(text), err=True)


def sanitize_for_terminal(text: str) -> str:
    """Return the text without controls, with the project's form of its commands."""
    if "`exporter " in text:
        text = replace_commands(text, _read_command_cached(PROJECT_ROOT.get()))
    return escape_ci_commands(text)


_read_command_cached = cache(read_command)


def has_color() -> bool:
    """Return True if stdout shows colors and the user wants them (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def is_terminal() -> bool:
    """Return True if stdout is a terminal that can redraw lines."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def choose_color(status: Status) -> str | None:
    if status.is_red:
        return "red"
    return "green" if status.is_green else None


def find_width() -> int | None:
    """Return the columns of the terminal, or of the variable COLUMNS; None if there is no limit."""
    if os.environ.get("COLUMNS", "").isdigit() or is_terminal():
        return shutil.get_terminal_size().columns
    return None  # other programs read complete lines


def fit_columns(rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """Return the rows as lines with columns of equal width, within a width.

    Returns:
        If the rows are too wide, the last column is wrapped. If it would be narrow, each row begins
        with its first entry, and the others follow on indented lines.
    """
    rows = [[remove_controls(entry) for entry in row] for row in rows]
    lines = align_columns(rows)
    if width is None or all(len(line) <= width for line in lines):
        return lines
    start = max(len(line) for line in align_columns(row[:-1] for row in rows)) + 2
    if width - start >= _NARROW:
        fitted = []
        for line, row in zip(align_columns([*row[:-1], "|"] for row in rows), rows, strict=True):
            first, *others = textwrap.wrap(row[-1], width - start) or [""]
            fitted.append(f"{line[:-1].ljust(start)}{first}".rstrip())
            fitted += [" " * start + other for other in others]
        return fitted
    fitted = []
    for first, *entries in rows:
        text = "  ".join(entry for entry in entries if entry)
        fitted.append(first)
        fitted += textwrap.wrap(
            text, max(width, _NARROW), initial_indent="    ", subsequent_indent="      "
        )
    return fitted


def align_columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows as lines with columns of equal width."""
    rows = [[remove_controls(entry) for entry in row] for row in rows]
    if not rows:
        return []
    widths = [max(len(entry) for entry in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def print_summary(summary: ExportSummary, seconds: float | None = None) -> None:
    """Print the summary line by line, the time of the export with the counts, and the next step."""
    *lines, (counts, color) = summary.lines
    for line, line_color in lines:
        print_line(line, color=line_color, wraps=True)
    if seconds is not None:
        is_short, minutes = seconds < 60, f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
        counts += f" in {f'{seconds:.1f} s' if is_short else minutes}"
    print_line(counts, color=color, wraps=True)
    if summary.next_step:
        print_line(f"next: {summary.next_step}", wraps=True)
