"""Merge layers of settings into the effective settings of a model, with the origin of each key.

Later layers win: built-in default, `[tool.exporter]`, `[defaults]` of the file, the parent that
`extends` names, the entry. A parent is resolved with its own file's `[defaults]` before an entry
extends it. `init`, `options` and `axes` are merged key by key, and so is each axis. Other keys are
replaced.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.core.errors import Problem, suggest_nearest
from exporter.manifest.schema.entry import OptionsTable, Settings
from exporter.manifest.schema.tables import AxisTable, Table, list_explicit_values
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath, quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One table of settings with its place."""

    file: TomlFile
    path: KeyPath
    table: Settings
    broken: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """The problems of each invalid key, which are already reported."""

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the project's root; "" for the root."""
        return posixpath.dirname(self.file.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings of one model."""

    id: str
    entry: Layer
    settings: Settings
    origins: Mapping[KeyPath, Layer]
    """The layer of each key, of each item of the merged tables, and of each key of an axis."""
    broken: Mapping[str, tuple[Problem, ...]]
    """The problems of each key that is invalid in the layer that sets it."""
    report: ProblemCollector
    """The problems of this model only."""
    source_paths: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """The table with `repeat` of each copy, such as `("inputs", 5)`."""

    def find_source_path(self, path: KeyPath) -> KeyPath:
        """Return the key in the file for the value at `path`."""
        return (*self.source_paths.get(path[:2], path[:2]), *path[2:])

    def find_layer(self, path: KeyPath) -> Layer:
        """Return the layer that sets the value at `path`, or the entry if none sets it."""
        layers = (self.origins.get(path[:length]) for length in (3, 2, 1))
        return next((layer for layer in layers if layer), self.entry)

    def add_problem(self, path: KeyPath, message: str) -> None:
        """Report a problem at the place of the value, which may be in another layer."""
        path = self.find_source_path(path)
        layer = self.find_layer(path)
        problem = layer.file.build_problem((*layer.path, *path), message)
        self.report.add(problem, model="" if layer is self.entry else self.id)

    def is_own(self, path: KeyPath) -> bool:
        """Return whether the entry itself sets the value, and no layer below it."""
        return self.find_layer(self.find_source_path(path)) is self.entry

    def has_valid(self, *keys: str) -> bool:
        """Return whether all keys exist and are valid, as rules require."""
        missing = (key in Settings.required and (key,) not in self.origins for key in keys)
        return self.broken.keys().isdisjoint(keys) and not any(missing)

    def first_own_key(self, *keys: str) -> KeyPath:
        """Return the first of the contradictory keys that the entry itself sets."""
        own_keys = (key for key in keys if self.origins.get((key,)) is self.entry)
        return (next(own_keys, keys[0]),)


def merge_layers(id: str, layers: Sequence[Layer], report: ProblemCollector) -> EffectiveSettings:
    """Merge the layers, lowest first; the last one is the entry."""
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Layer] = {}
    broken: dict[str, tuple[Problem, ...]] = {}
    for layer in layers:
        for index, text in enumerate(getattr(layer.table, "unset", ())):
            path = tuple(text.split("."))
            if path in origins or (len(path) == 1 and text in broken):
                _remove_value(values, path)
                broken.pop(text, None)
                origins = {key: each for key, each in origins.items() if key[: len(path)] != path}
                continue
            hint = suggest_nearest(text, [".".join(map(str, key)) for key in origins])
            message = f"no parent and no [defaults] set {quote(text)}{hint or '; remove it'}"
            problem = layer.file.build_problem((*layer.path, "unset", index), message)
            report.add(problem, model="" if layer is layers[-1] else id)
        for key, value in list_explicit_values(layer.table).items():
            if key in ("extends", "unset"):
                continue
            origins[key,] = layer
            if key in Settings.merged:
                items = list_explicit_values(value) if isinstance(value, Table) else value
                lower = values.get(key, {})
                values[key] = {**lower, **items}
                origins |= {(key, item): layer for item in items}
                if key == "axes":
                    values[key] |= {
                        name: _merge_axes(lower.get(name), items[name]) for name in items
                    }
                    origins |= {
                        (key, name, item): layer
                        for name, axis in items.items()
                        for item in axis.model_fields_set
                    }
            else:
                values[key] = value
                broken.pop(key, None)
        for key, problems in layer.broken.items():
            broken[key] = (*broken.get(key, ()), *problems)
    if "options" in values:
        keys = set(values["options"])
        values["options"] = OptionsTable.model_construct(keys, **values["options"])
    return EffectiveSettings(
        id=id,
        entry=layers[-1],
        settings=Settings.model_construct(set(values), **values),
        origins=origins,
        broken=broken,
        report=report,
    )


def _remove_value(values: dict[str, Any], path: Sequence[str]) -> None:
    """Remove a key, an item of a merged table or a key of an axis."""
    key, *steps = path
    if not steps:
        values.pop(key, None)
    elif len(steps) == 1:
        values[key] = {name: item for name, item in values[key].items() if name != steps[0]}
    else:
        items = list_explicit_values(values[key][steps[0]])
        del items[steps[1]]
        axis = AxisTable.model_construct(set(items), **items)
        values[key] = {**values[key], steps[0]: axis}


def _merge_axes(lower: AxisTable | None, upper: AxisTable) -> AxisTable:
    """Return the keys of both tables; those of `upper` win."""
    items = {**(list_explicit_values(lower) if lower else {}), **list_explicit_values(upper)}
    return AxisTable.model_construct(set(items), **items)
