"""`exporter explain`: list every setting of one cell with the file and line of its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import Field

from exporter.cli.options import complete, json_option, root_option, select_one_cell
from exporter.cli.output.tables import print_file_problems
from exporter.cli.output.terminal import print_document, print_error, print_line, print_table
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import rename_reference
from exporter.manifest import load_layers
from exporter.manifest.resolved.model import MEASURED, ModelSpec
from exporter.manifest.rules.chain import KEYS_OF_LINKS
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.schema.entry import OverrideTable, Settings
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.values import KeyPath, format_key, format_toml_value

_Overrides = Sequence[tuple[KeyPath, OverrideTable]]

BUILT_IN = "built-in default"
CHOSEN = "chosen"
#: The meaning of keys without a value.
_UNSET_VALUES = {
    "capture": '"export" and then "strict" for dynamo, "trace" for TorchScript',
    "tolerance": MEASURED,
}


class Setting(FrozenModel):
    """A key of a cell."""

    key: str
    value: str = Field(description="In TOML notation.")
    origin: str = Field(description="FILE:LINE, `built-in default`, `chosen` or `computed: ...`.")


def explain_cell(
    entry: EffectiveSettings, spec: ModelSpec, opset: int, device_name: str
) -> Iterator[Setting]:
    overrides: _Overrides = [
        (("overrides", index), table)
        for index, table in enumerate(entry.settings.overrides)
        if (table.opset is None or opset in table.opset)
        and DeviceName(device_name).matches(table.device)
    ]
    unused = {*KEYS_OF_LINKS} if spec.chain else set[str]()
    unused -= {"generate"} if spec.generate else set()
    for key in Settings.model_fields:
        if key == "overrides" or key in unused:
            continue
        if key in Settings.merged:
            yield from _explain_items(entry, key, overrides)
            # The example sizes that the manifest does not set, and that the tool chooses.
            if key == "axes":
                for axis in spec.axes:
                    table = entry.settings.axes.get(axis.name)
                    if axis.example is not None and (table is None or table.example is None):
                        origin = f"computed: {axis.rule.formula}" if axis.rule else CHOSEN
                        name = format_key(("axes", axis.name, "example"))
                        yield Setting(key=name, value=str(axis.example), origin=origin)
        elif row := _explain_key(entry, key, overrides):
            value = rename_reference(row.value, spec.oracle) if key == "tolerance" else row.value
            row = row.model_copy(update={"value": value})
            yield from _explain_devices(entry, spec, row) if key == "devices" else (row,)


def _explain_devices(entry: EffectiveSettings, spec: ModelSpec, row: Setting) -> Iterator[Setting]:
    """Yield the devices of the entry, and those that run the file for its consumers."""
    names = entry.settings.devices  # the project may define them in a table
    yield row.model_copy(update={"value": format_toml_value(names)})
    if added := [name for name in spec.devices if name not in names]:
        origin = "computed: consumers"
        yield Setting(key=row.key, value=format_toml_value(added), origin=origin)


def _explain_key(entry: EffectiveSettings, key: str, overrides: _Overrides) -> Setting | None:
    """Return the row of a key, or None if the key has no value."""
    winner: KeyPath = (key,)
    for key_path, table in overrides:
        if key == "capture" and table.exporter is not None:
            # An exporter in an override resets the capture to its own default.
            winner = (*key_path, "exporter")
        if key in table.model_fields_set:
            winner = (*key_path, key)
    if winner[-1] == "exporter" and key == "capture":
        origin = _find_origin(entry, winner)
        return Setting(key=key, value="the exporter's default", origin=origin)
    if winner[:1] in entry.origins:
        return _build_row(entry, (key,), winner)
    default = Settings.model_fields[key].get_default(call_default_factory=True)
    if key in _UNSET_VALUES:
        return Setting(key=key, value=_UNSET_VALUES[key], origin=BUILT_IN)
    if default in (None, "", (), {}) or isinstance(default, Table):
        return None
    return Setting(key=key, value=format_toml_value(default), origin=BUILT_IN)


def _explain_items(entry: EffectiveSettings, key: str, overrides: _Overrides) -> Iterator[Setting]:
    """Yield a row for each item of a table that is merged key by key."""
    length = 3 if key == "axes" else 2
    paths: dict[KeyPath, KeyPath] = {
        key_path: key_path
        for key_path in entry.origins
        if key_path[0] == key and len(key_path) == length
    }
    if key == "options":
        for key_path, table in overrides:
            paths |= {(key, item): (*key_path, key, item) for item in table.options.list_explicit()}
    names = list(dict.fromkeys(key_path[1] for key_path in paths))  # all keys of an axis in a row
    for item_key, key_path in sorted(paths.items(), key=lambda item: names.index(item[0][1])):
        yield _build_row(entry, item_key, key_path)


def _build_row(entry: EffectiveSettings, key: KeyPath, key_path: KeyPath) -> Setting:
    """Return the row of a key with the value at `path` of the model."""
    layer = entry.find_layer(key_path)
    value: Any = layer.file.table
    for step in (*layer.path, *key_path):
        value = value[step] if not isinstance(value, dict) or step in value else None
    if value is None:
        value = getattr(layer.table, str(key_path[0]))
    origin = _find_origin(entry, key_path)
    return Setting(key=format_key(key), value=format_toml_value(value), origin=origin)


def _find_origin(entry: EffectiveSettings, key_path: KeyPath) -> str:
    layer = entry.find_layer(key_path)
    return str(layer.file.build_problem((*layer.path, *key_path), "").location)


class ExplainDocument(FrozenModel):
    """The settings of a cell: `explain CELL --json`."""

    format: Literal[1] = 1
    cell: str
    exporter: str
    capture: str
    reason: str = Field(description="Why this exporter is used.")
    skip: str = Field(description="Why the cell does not run, or empty.")
    problems: Items[str]
    settings: Items[Setting]


@click.command()
@click.argument("cell", shell_complete=complete("cells"))
@root_option
@json_option(ExplainDocument)
def explain(cell: str, root: Path, *, as_json: bool) -> int:
    """Show each setting of CELL, and the line it comes from.

    CELL is a full id (model/opset/device) or a pattern that matches one cell.
    """
    loaded = load_layers(root, keep_invalid=True)
    print_file_problems(loaded.manifest)
    planned = select_one_cell(loaded.manifest, cell)
    id, route = planned.cell, planned.route
    spec = loaded.manifest.find_model(id.model)
    settings = tuple(explain_cell(loaded.layers[id.model], spec, id.opset, id.device))
    if as_json:
        document = ExplainDocument.from_fields(
            route, cell=str(id), skip=planned.skip, problems=spec.problems, settings=settings
        )
        print_document(document)
        return ExitCode.OK
    name = f"{route.exporter} {route.capture}" if route.is_export else route.title
    print_line(f"{id}: {name}, because {route.reason}")
    if planned.skip:
        print_line(f"{planned.skip_status}: {planned.skip}")
    for problem in spec.problems:
        print_error(problem)
    rows = ((setting.key, setting.origin, setting.value) for setting in settings)
    print_table([("KEY", "FROM", "VALUE"), *rows])
    return ExitCode.OK
