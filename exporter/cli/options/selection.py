"""Options that commands share, turned into the values that the rest of the package works with.

In: words of the command line, and the clock. Out: a `Selection`, a folder, a date.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.core.errors import ExitCode, ExporterError
from exporter.planning.selection import Selection

if TYPE_CHECKING:  # a run with nothing to do never reads a manifest
    from exporter.manifest import Manifest
    from exporter.planning.plan import PlannedCell

#: How many cells a message names.
_SHOWN = 4

no_store_option = click.option(
    "--no-store", is_flag=True, help="Take nothing from the store, and keep nothing there."
)
root_option = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The project's folder, with its pyproject.toml.",
)


def selection_options(function: Callable[..., int]) -> Callable[..., int]:
    """Adds the arguments that select cells; the command gets them as one `Selection`."""

    @click.argument("cells", nargs=-1)
    @click.option("--tag", "tags", multiple=True, help="Only models with this tag; repeatable.")
    @click.option("--opset", "opsets", multiple=True, type=int, help="Only this opset; repeatable.")
    @click.option("--device", "devices", multiple=True, help="Only this device; repeatable.")
    @functools.wraps(function)
    def selecting(
        cells: tuple[str, ...],
        tags: tuple[str, ...],
        opsets: tuple[int, ...],
        devices: tuple[str, ...],
        **others: object,
    ) -> int:
        selection = Selection(patterns=cells, tags=tags, opsets=opsets, devices=devices)
        return function(selection, **others)

    return selecting


def select_one_cell(manifest: Manifest, pattern: str) -> PlannedCell:
    """The one cell that a pattern means.

    Raises:
        ExporterError: NOTHING_SELECTED, where it means none or several.
    """
    from exporter.planning.plan import make_plan

    plan = make_plan(manifest, Selection(patterns=(pattern,)))
    if len(plan.selected) > 1:
        ids = [str(planned.cell) for planned in plan.selected]
        shown = ", ".join([*ids[:_SHOWN], *(["..."] if len(ids) > _SHOWN else [])])
        message = f"'{pattern}' means {len(ids)} cells; name one of them: {shown}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return plan.selected[0]


def get_today() -> date:
    """The date by which expectations end, the same wherever the command runs."""
    return datetime.now(tz=UTC).date()
