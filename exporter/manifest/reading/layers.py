"""Layers of settings in, the effective settings of a model out, with where each came from.

Later wins: built-in default, `[tool.exporter]`, `[defaults]` of the file, the parent that `extends`
names, the entry. A parent brings the `[defaults]` of its own file with it: what extends it starts
from what it is. `init`, `options` and `axes` are merged key by key, all else is replaced.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import TomlFile
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import OptionsTable, Table, list_explicit_values
from exporter.manifest.syntax.message_format import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One table of settings, and where it stands."""

    file: TomlFile
    path: KeyPath
    table: Settings
    broken: frozenset[str] = frozenset()
    """Keys that were written and are reported already."""

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the project's root; empty for the root."""
        return posixpath.dirname(self.file.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings of one model."""

    id: str
    own: Layer
    settings: Settings
    origins: Mapping[KeyPath, Layer]
    """The layer of each key, and of each item of the merged tables."""
    broken: frozenset[str]
    report: ProblemCollector
    written: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Where the table of a copy is written, by the place of the copy: `("inputs", 5)`."""

    def key(self, path: KeyPath) -> KeyPath:
        """The key that the user wrote for what stands at `path`."""
        return (*self.written.get(path[:2], path[:2]), *path[2:])

    def origin(self, path: KeyPath) -> Layer:
        """The layer that says what stands at `path`; the entry where none does."""
        return self.origins.get(path[:2]) or self.origins.get(path[:1]) or self.own

    def add_problem(self, path: KeyPath, message: str) -> None:
        """Reports a problem where the value stands, be it in `[defaults]` or in a parent."""
        path = self.key(path)
        layer = self.origin(path)
        problem = layer.file.problem((*layer.path, *path), message)
        self.report.add(problem, model="" if layer is self.own else self.id)

    def has(self, *keys: str) -> bool:
        """Whether all these are there and sound, so that rules about them make sense."""
        missing = (key in Settings.required and (key,) not in self.origins for key in keys)
        return self.broken.isdisjoint(keys) and not any(missing)

    def first_own_key(self, *keys: str) -> KeyPath:
        """Of keys that contradict each other, the first one that the entry itself says."""
        own = (key for key in keys if self.origins.get((key,)) is self.own)
        return (next(own, keys[0]),)


def merge_layers(id: str, layers: Sequence[Layer], report: ProblemCollector) -> EffectiveSettings:
    """Lays the last of `layers` over those before it."""
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Layer] = {}
    broken: set[str] = set()
    for layer in layers:
        for key, value in list_explicit_values(layer.table).items():
            if key == "extends":
                continue
            origins[key,] = layer
            if key in Settings.merged:
                items = list_explicit_values(value) if isinstance(value, Table) else value
                values[key] = {**values.get(key, {}), **items}
                origins |= {(key, item): layer for item in items}
            else:
                values[key] = value
                broken.discard(key)
        broken |= layer.broken
    if "options" in values:
        written = set(values["options"])
        values["options"] = OptionsTable.model_construct(written, **values["options"])
    return EffectiveSettings(
        id=id,
        own=layers[-1],
        settings=Settings.model_construct(set(values), **values),
        origins=origins,
        broken=frozenset(broken),
        report=report,
    )
