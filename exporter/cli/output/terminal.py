"""How lines reach the terminal: without controls and commands, and in colour only where it is one.

In: text, trusted or not. Out: lines on stdout and stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.core.command_names import read_command, replace_commands
from exporter.core.sanitize import escape_ci_commands, remove_controls

if TYPE_CHECKING:  # `--version` does not wait for pydantic
    from exporter.records.record import Status


#: The project's folder, whose settings know how its people type a command.
ROOT = ContextVar("ROOT", default=Path())


def print_line(text: str = "", *, colour: str | None = None) -> None:
    """One line or more on stdout."""
    text = sanitize_for_terminal(text)
    click.echo(click.style(text, fg=colour) if colour else text, color=has_color())


def print_error(text: str) -> None:
    """One line or more on stderr."""
    click.echo(sanitize_for_terminal(text), err=True)


def sanitize_for_terminal(text: str) -> str:
    """The text as it is shown: harmless, and its commands spelled as this project does."""
    if "`exporter " in text:
        text = replace_commands(text, _command(ROOT.get()))
    return escape_ci_commands(text)


@cache
def _command(root: Path) -> str:
    return read_command(root)


def has_color() -> bool:
    """Whether stdout shows colours and the user wants them (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def is_terminal() -> bool:
    """Whether stdout is a terminal on which lines can be drawn again."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def choose_color(status: Status) -> str | None:
    """Green, red, or nothing special."""
    if status.is_red:
        return "red"
    return "green" if status.is_green else None


def align_columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines, each column as wide as its widest entry."""
    rows = [[remove_controls(entry) for entry in row] for row in rows]
    if not rows:
        return []
    widths = [max(len(entry) for entry in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
