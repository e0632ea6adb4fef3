"""A TOML file in, its tables validated one by one out; what is wrong is reported.

A wrong key costs that key and not its neighbours: it is reported, taken out, and remembered as
broken, so that the rules which look at several keys still speak about all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from exporter.manifest.reading.layers import Layer
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import TomlFile
from exporter.manifest.reading.validation_messages import format_errors
from exporter.manifest.schema.entry import Document, Settings
from exporter.manifest.schema.tables import Table
from exporter.manifest.syntax.message_format import KeyPath

T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One manifest: its `[defaults]`, and its entries by ID."""

    file: TomlFile
    defaults: Layer
    entries: Mapping[str, Layer]
    unreadable: frozenset[str]
    """IDs whose entry is no table."""


def validate_manifest(file: TomlFile, report: ProblemCollector) -> ManifestFile:
    """Validates a manifest file."""
    document, dropped = validate(Document, file, (), report)

    def layer(path: KeyPath, table: Settings) -> Layer:
        broken = frozenset(str(each[-1]) for each in dropped if each[:-1] == path)
        return Layer(file=file, path=path, table=table, broken=broken)

    return ManifestFile(
        file=file,
        defaults=layer(("defaults",), document.defaults),
        entries={id: layer(("models", id), entry) for id, entry in document.models.items()},
        unreadable=frozenset(
            str(each[1]) for each in dropped if each[0] == "models" and len(each) == 2
        ),
    )


def validate(
    table: type[T], file: TomlFile, path: KeyPath, report: ProblemCollector
) -> tuple[T, frozenset[KeyPath]]:
    """Validates the table at `path` of `file`.

    Returns:
        The table without what is wrong in it, and the paths of what was taken out.
    """
    raw: Any = file.table
    for step in path:
        raw = raw[step]
    try:
        return table.model_validate(raw), frozenset()
    except ValidationError as error:
        problems = list(format_errors(error, table))
    for inner, message in problems:
        report.add(file.problem((*path, *inner), message))
    dropped = frozenset(_unit(inner) for inner, _ in problems if inner)
    for unit in dropped:
        raw = _without(raw, unit)
    return table.model_validate({**table.default_values, **raw}), dropped


def _unit(path: KeyPath) -> KeyPath:
    """How much is taken out for a problem at `path`: one key of one table of settings."""
    return path[: {"models": 3, "defaults": 2}.get(str(path[0]), 1)]


def _without(table: Any, path: KeyPath) -> Any:
    key, *rest = path
    if not rest:
        return {name: value for name, value in table.items() if name != key}
    if not isinstance(table.get(key), dict):
        return table
    return {**table, key: _without(table[key], tuple(rest))}
