"""Every setting of one cell, and the file and line that it comes from.

In: the project as it was read, and a cell. Out: a row per key, in the order of the reference.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import Table, list_explicit_values
from exporter.manifest.spec.model import ModelSpec
from exporter.manifest.syntax.message_format import KeyPath, format_key

_Overrides = Sequence[tuple[KeyPath, OverrideTable]]

BUILT_IN = "built-in default"
CHOSEN = "chosen"
_MEASURED = "measured: a multiple of PyTorch's own float32 error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSetting:
    """One key of a cell."""

    key: str
    value: str
    """In TOML's spelling."""
    origin: str
    """`manifests/vision.toml:14`, `built-in default` or `chosen`."""


def explain_cell(
    model: EffectiveSettings, spec: ModelSpec, opset: int, device: str
) -> Iterator[ExplainedSetting]:
    """What holds for one cell of a model, key by key.

    Args:
        model: The settings with their layers.
        spec: What was made of them.
        opset: The cell's.
        device: The cell's.
    """
    overrides: _Overrides = [
        (("overrides", index), table)
        for index, table in enumerate(model.settings.overrides)
        if _means(table, opset, device)
    ]
    for key in Settings.model_fields:
        if key == "overrides":
            continue
        if key in Settings.merged:
            yield from _merged(model, key, overrides)
            if key == "axes":
                yield from _chosen_examples(model, spec)
        else:
            path = _winner(key, overrides) or (key,)
            if row := _row(model, key, path):
                yield row
    yield from _outputs(model, overrides)


def _means(table: OverrideTable, opset: int, device: str) -> bool:
    right_opset = table.opset is None or opset in table.opset
    return right_opset and fnmatchcase(device, table.device)


def _winner(key: str, overrides: _Overrides) -> KeyPath | None:
    """Where the last override stands that says a key; its exporter brings its own capture."""
    found: KeyPath | None = None
    for path, table in overrides:
        if key == "capture" and table.exporter is not None:
            found = (*path, "exporter")
        if key in table.model_fields_set and key != "outputs":
            found = (*path, key)
    return found


def _row(model: EffectiveSettings, key: str, path: KeyPath) -> ExplainedSetting | None:
    """The row of a key that stands at `path`, or has its default; none where that is empty."""
    if path[-1] == "exporter" and key == "capture":
        return ExplainedSetting(key=key, value="the exporter's own", origin=_place(model, path))
    if path[:1] in model.origins:
        return ExplainedSetting(
            key=key, value=format_toml_value(_raw(model, path)), origin=_place(model, path)
        )
    default = Settings.model_fields[key].get_default(call_default_factory=True)
    if key == "tolerance":
        return ExplainedSetting(key=key, value=_MEASURED, origin=BUILT_IN)
    if default in (None, "", (), {}) or isinstance(default, Table):
        return None
    return ExplainedSetting(key=key, value=format_toml_value(default), origin=BUILT_IN)


def _merged(
    model: EffectiveSettings, key: str, overrides: _Overrides
) -> Iterator[ExplainedSetting]:
    """A row for each item of a table that layers share."""
    paths: dict[str, KeyPath] = {
        str(path[1]): path for path in model.origins if path[0] == key and len(path) == 2
    }
    if key == "options":
        for path, table in overrides:
            paths |= {item: (*path, key, item) for item in list_explicit_values(table.options)}
    for item, path in paths.items():
        yield ExplainedSetting(
            key=format_key((key, item)),
            value=format_toml_value(_raw(model, path)),
            origin=_place(model, path),
        )


def _chosen_examples(model: EffectiveSettings, spec: ModelSpec) -> Iterator[ExplainedSetting]:
    """Sizes that nobody wrote: an axis without one is exported at a prime of its own."""
    for axis in spec.axes:
        table = model.settings.axes.get(axis.name)
        if axis.example is not None and (table is None or table.example is None):
            key = format_key(("axes", axis.name, "example"))
            yield ExplainedSetting(key=key, value=str(axis.example), origin=CHOSEN)


def _outputs(model: EffectiveSettings, overrides: _Overrides) -> Iterator[ExplainedSetting]:
    """Tolerances of single outputs; the last override of each wins."""
    found = {
        output.name: (*path, "outputs", index, "tolerance")
        for path, table in overrides
        for index, output in enumerate(table.outputs)
    }
    for name, path in found.items():
        yield ExplainedSetting(
            key=format_key(("outputs", name, "tolerance")),
            value=format_toml_value(_raw(model, path)),
            origin=_place(model, path),
        )


def _raw(model: EffectiveSettings, path: KeyPath) -> Any:
    """What the file says at a path of the model."""
    layer = model.origin(path)
    value: Any = layer.file.table
    for step in (*layer.path, *path):
        # `devices` of the project may stand under the key `default_devices`.
        value = value[step] if not isinstance(value, dict) or step in value else None
    return getattr(layer.table, str(path[0])) if value is None else value


def _place(model: EffectiveSettings, path: KeyPath) -> str:
    layer = model.origin(path)
    return str(layer.file.problem((*layer.path, *path), "").location)


def format_toml_value(value: object) -> str:
    """A value in TOML's spelling, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case dt.date() | dt.time():
            return value.isoformat()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(format_toml_value(item) for item in value)}]"
        case dict():
            items = (
                f"{format_key((str(key),))} = {format_toml_value(item)}"
                for key, item in value.items()
            )
            return f"{{ {', '.join(items)} }}" if value else "{}"
        case float() if value.is_integer():
            return f"{value:.1f}"
    return repr(value)
