"""Options that select the project and its cells."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.core.errors import ExitCode, ExporterError
from exporter.planning.selection import Selection

if TYPE_CHECKING:  # a no-op must not import the manifest package
    from exporter.manifest import Manifest
    from exporter.planning.plan import PlannedCell

#: The number of cells that a message lists.
_SHOWN = 4

no_store_option = click.option("--no-store", is_flag=True, help="Neither read nor write the store.")
root_option = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The project's folder, with its pyproject.toml.",
)


def selection_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments that select cells; the command receives one `Selection`."""
    return click.argument("cells", nargs=-1)(_add_filters(function))


def cells_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--cells` and the other options that select cells, for commands with other arguments."""
    option = click.option("--cells", multiple=True, help="Only cells of this glob; repeatable.")
    return option(_add_filters(function))


def _add_filters(function: Callable[..., int]) -> Callable[..., int]:
    @click.option("--tag", "tags", multiple=True, help="Only models with this tag; repeatable.")
    @click.option("--opset", "opsets", multiple=True, type=int, help="Only this opset; repeatable.")
    @click.option("--device", "devices", multiple=True, help="Only this device; repeatable.")
    @functools.wraps(function)
    def call_with_selection(
        cells: tuple[str, ...],
        tags: tuple[str, ...],
        opsets: tuple[int, ...],
        devices: tuple[str, ...],
        **others: object,
    ) -> int:
        selection = Selection(patterns=cells, tags=tags, opsets=opsets, devices=devices)
        return function(selection, **others)

    return call_with_selection


def select_one_cell(manifest: Manifest, pattern: str) -> PlannedCell:
    """Return the only cell that matches a pattern.

    Raises:
        ExporterError: NOTHING_SELECTED if the pattern matches no cell or several cells.
    """
    from exporter.planning.plan import make_plan

    plan = make_plan(manifest, Selection(patterns=(pattern,)))
    if len(plan.selected) > 1:
        ids = [str(planned.cell) for planned in plan.selected]
        shown = ", ".join([*ids[:_SHOWN], *(["..."] if len(ids) > _SHOWN else [])])
        message = f"'{pattern}' matches {len(ids)} cells; name one of them: {shown}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return plan.selected[0]
