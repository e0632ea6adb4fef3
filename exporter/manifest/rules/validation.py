"""Validate the tables of a TOML file one by one, and report the problems.

An invalid key does not affect its neighbors. It is reported, removed, and listed as broken, so the
rules for several keys still check all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from exporter.core.errors import Problem
from exporter.manifest.rules.invalid_tables import format_errors, warn_of_deprecated_keys
from exporter.manifest.rules.layers import Layer
from exporter.manifest.schema.entry import Document, Settings
from exporter.manifest.syntax.table import Table, read_keys
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath

T = TypeVar("T", bound=Table)
#: A problem below these keys removes a path of this length; below other keys only the key.
_REMOVED_LENGTHS = {"models": 3, "defaults": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One manifest: its `[defaults]`, and its entries by ID."""

    file: TomlFile
    defaults: Layer
    entries: Mapping[str, Layer]
    unreadable: Mapping[str, tuple[Problem, ...]]
    """The problems of entries that are not tables, by ID."""


#: The end of the name of a file with the interface of a model that generates.
INTERFACE = ".interface.toml"


def validate_manifest(file: TomlFile, report: ProblemCollector) -> ManifestFile:
    document, removed = validate(Document, file, (), report)
    # Without a valid version or a table of defaults, no entry of the file has a certain meaning.
    common = {
        str(key[0]): problems
        for key, problems in removed.items()
        if key[0] in ("format", "defaults") and len(key) == 1
    }

    def build_layer(key_path: KeyPath, table: Settings) -> Layer:
        broken = {str(key[-1]): each for key, each in removed.items() if key[:-1] == key_path}
        return Layer(file=file, path=key_path, table=table, broken={**common, **broken})

    return ManifestFile(
        file=file,
        defaults=build_layer(("defaults",), document.defaults),
        entries={id: build_layer(("models", id), entry) for id, entry in document.models.items()},
        unreadable={
            str(key[1]): problems
            for key, problems in removed.items()
            if key[0] == "models" and len(key) == 2
        },
    )


def validate(
    table: type[T], file: TomlFile, path: KeyPath, report: ProblemCollector
) -> tuple[T, Mapping[KeyPath, tuple[Problem, ...]]]:
    """Validate the table at `path` of `file`.

    Returns:
        The table without its invalid keys, and the problems by the paths of the removed keys. A
        missing key counts as removed.
    """
    raw: Any = file.table
    for step in path:
        raw = raw[step]
    if any(key.deprecated for each in _list_tables(Table) for key in read_keys(each).values()):
        warn_of_deprecated_keys(table, file, path, raw)
    try:
        return table.model_validate(raw), {}
    except ValidationError as error:
        problems = list(format_errors(error, table))
    removed: dict[KeyPath, tuple[Problem, ...]] = {}
    for inner, message in problems:
        problem = file.build_problem((*path, *inner), message)
        report.add(problem)
        key_path = inner[: _REMOVED_LENGTHS.get(str(inner[0]), 1)] if inner else ("format",)
        removed[key_path] = (*removed.get(key_path, ()), problem)
    for key_path in removed:
        raw = _remove_key(raw, key_path)
    return table.model_validate({"format": 1, **raw} if table is Document else raw), removed


def _list_tables(table: type[Table]) -> Iterator[type[Table]]:
    yield table
    for each in table.__subclasses__():
        yield from _list_tables(each)


def _remove_key(table: Any, key_path: KeyPath) -> Any:
    key, *rest = key_path
    if not rest:
        return {name: value for name, value in table.items() if name != key}
    if not isinstance(table.get(key), dict):
        return table
    return {**table, key: _remove_key(table[key], tuple(rest))}
