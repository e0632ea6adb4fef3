"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.toml_table import find_root, read_setting
from exporter.planning import Selection

if TYPE_CHECKING:  # a no-op must not import the manifest package and the planning modules
    from exporter.core.frozen_model import FrozenModel
    from exporter.manifest import Manifest
    from exporter.planning.plan import PlannedCell

#: The number of cells that a message lists.
_SHOWN = 4

no_store_option = click.option("--no-store", is_flag=True, help="Neither read nor write the store.")
weights_option = click.option(
    "--weights",
    type=click.Choice(["initial"]),
    help="Use initial values where a file of weights that git ignores is missing. This proves the "
    "export, not the numbers of the trained weights.",
)
root_option = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=find_root,
    show_default="the project of the current folder",
    help="The project's folder, with its pyproject.toml.",
)


def json_option(document: type[FrozenModel]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add `--json`; `exporter schema COMMAND` prints the schema of the document."""

    def add_option(function: Callable[..., int]) -> Callable[..., int]:
        function.document = document  # type: ignore[attr-defined] # functools.wraps copies it
        text = "Print a JSON document; see `schema`."
        return click.option("--json", "as_json", is_flag=True, help=text)(function)

    return add_option


def complete(values: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return the completion of a value: `cells`, `tags`, `owners`, `opsets` or `devices`."""

    def list_values(context: click.Context, _: click.Parameter, word: str) -> list[str]:
        # 110 ms that a no-op does not need.
        from exporter.manifest import load_project
        from exporter.planning.plan import list_cells

        try:
            root = context.params.get("root") or find_root()
            models = load_project(root, keep_invalid=True).models
        except (ExporterError, OSError):  # a message would destroy the command line
            return []
        if values == "cells":
            has_model = "/" in word
            names = [str(cell) for each in models for cell in list_cells(each) if has_model]
            names += [each.id for each in models if not has_model]
        else:
            names = [
                str(name)
                for each in models
                for name in ((each.owner,) if values == "owners" else getattr(each, values))
            ]
        return [name for name in dict.fromkeys(names) if name.startswith(word)]

    return list_values


def selection_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments that select cells; the command receives one `Selection`."""
    argument = click.argument("cells", nargs=-1, shell_complete=complete("cells"))
    return argument(_add_filters(function))


def cells_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--cells` and the other options that select cells, for commands with other arguments."""
    option = click.option(
        "--cells",
        multiple=True,
        shell_complete=complete("cells"),
        help="Only cells of this glob; repeatable.",
    )
    return option(_add_filters(function))


def _add_filters(function: Callable[..., int]) -> Callable[..., int]:
    @click.option(
        "--tag",
        "tags",
        multiple=True,
        shell_complete=complete("tags"),
        help="Only models with this tag; repeatable.",
    )
    @click.option(
        "--owner",
        "owners",
        multiple=True,
        shell_complete=complete("owners"),
        help="Only models of this owner; repeatable.",
    )
    @click.option(
        "--opset",
        "opsets",
        multiple=True,
        type=int,
        shell_complete=complete("opsets"),
        help="Only this opset; repeatable.",
    )
    @click.option(
        "--device",
        "devices",
        multiple=True,
        shell_complete=complete("devices"),
        help="Only this device; repeatable.",
    )
    @functools.wraps(function)
    def call_with_selection(
        cells: tuple[str, ...],
        tags: tuple[str, ...],
        owners: tuple[str, ...],
        opsets: tuple[int, ...],
        devices: tuple[str, ...],
        **others: object,
    ) -> int:
        selection = Selection(
            patterns=cells, tags=tags, owners=owners, opsets=opsets, devices=devices
        )
        return function(selection, **others)

    return call_with_selection


def result_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--last-failed` and `--changed`, after `selection_options`."""

    @click.option(
        "--last-failed", "--lf", is_flag=True, help="Only cells that are red in their last result."
    )
    @click.option(
        "--changed",
        metavar="REVISION",
        default="",
        help="Only cells with a change since the last common commit with this revision of git.",
    )
    @functools.wraps(function)
    def call_with_selection(
        selection: Selection, *, last_failed: bool, changed: str, **others: object
    ) -> int:
        return function(replace(selection, last_failed=last_failed, changed=changed), **others)

    return call_with_selection


def select_one_cell(manifest: Manifest, pattern: str) -> PlannedCell:
    """Return the only cell that matches a pattern.

    Raises:
        ExporterError: NOTHING_SELECTED if the pattern matches no cell or several cells.
    """
    from exporter.planning.plan import make_plan  # 110 ms that a no-op does not need

    plan = make_plan(manifest, Selection(patterns=(pattern,)))
    if len(plan.selected) > 1:
        ids = [str(planned.cell) for planned in plan.selected]
        shown = ", ".join([*ids[:_SHOWN], *(["..."] if len(ids) > _SHOWN else [])])
        message = f"'{pattern}' matches {len(ids)} cells; name one of them: {shown}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return plan.selected[0]


def read_environment_names(root: Path) -> list[str]:
    variables: list[str] = read_setting(root, "environment", [])
    return list(map(str, variables))
