"""Lines that GitHub shows at a file and line of a change, and pages cut to what it takes.

In: findings, problems, markdown. Out: workflow commands on stdout, in a GitHub job alone.

GitHub shows 10 errors and 10 warnings of a step and drops the rest without a word: where there are
more, the last place of its kind says how many. It reads a command in any line that begins with two
colons, which is why text of a model goes through `printable` everywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from exporter.core.errors import Location
from exporter.core.sanitize import join_lines

#: Of each level in one step.
_SHOWN = 10
#: GitHub cuts longer ones.
_LENGTH = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One thing to show."""

    level: Literal["error", "warning"]
    title: str
    message: str
    location: Location | None = None
    """Relative to the project's root."""


def annotate(annotations: Iterable[Annotation], root: Path) -> None:
    """Writes the commands, where a GitHub job is what runs this."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    for line in format_commands(tuple(annotations), root.resolve(), workspace.resolve()):
        click.echo(line)


def format_commands(
    annotations: Sequence[Annotation], root: Path, workspace: Path
) -> Iterator[str]:
    """One line for each annotation that GitHub would show.

    Args:
        annotations: All of them, the most important first.
        root: The project's root, absolute.
        workspace: The checkout, which GitHub's paths are relative to, absolute.
    """
    for level in ("error", "warning"):
        these = [item for item in annotations if item.level == level]
        shown = these if len(these) <= _SHOWN else these[: _SHOWN - 1]
        yield from (_command(item, root, workspace) for item in shown)
        if len(shown) < len(these):
            left = len(these) - len(shown)
            yield f"::{level} title=And {left} more::GitHub shows {_SHOWN}; the summary has all"


def shorten_page(page: str, limit: int) -> str:
    """Markdown of at most `limit` bytes: whole lines, and how many are left out."""
    if len(page.encode()) <= limit:
        return page
    lines = page.splitlines()
    kept, size = [], len(_left(len(lines)).encode())
    for line in lines:
        size += len(line.encode()) + 1
        if size > limit:
            break
        kept.append(line)
    return "\n".join(kept) + _left(len(lines) - len(kept))


def _left(count: int) -> str:
    return f"\n\n… {count} more lines are in `gate.md`, among what the job uploads.\n"


def _command(item: Annotation, root: Path, workspace: Path) -> str:
    properties = {"title": join_lines(item.title)}
    if item.location is not None:
        path = Path(os.path.relpath(root / item.location.file, workspace)).as_posix()
        properties["file"] = path
        if item.location.line is not None:
            properties["line"] = str(item.location.line)
    text = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{item.level} {text}::{_data(join_lines(item.message)[:_LENGTH])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
