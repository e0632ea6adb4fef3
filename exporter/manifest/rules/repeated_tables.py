"""The key `repeat` of inputs, outputs, constants and containers: a table for each copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias

from exporter.core.errors import suggest_nearest
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.schema.tables import (
    ConstantTable,
    ContainerTable,
    FillTable,
    InputTable,
    OutputTable,
)
from exporter.manifest.syntax.fields import MAX_COPIES, PLACEHOLDER
from exporter.manifest.syntax.values import KeyPath

#: The keys of an entry with tables that have `repeat`.
_REPEATED = ("inputs", "outputs", "constants", "containers")
_Repeatable: TypeAlias = "InputTable | OutputTable | ConstantTable | ContainerTable"


def expand_repeats(entry: EffectiveSettings) -> EffectiveSettings:
    """Return the model with a separate table for each copy."""
    keys = (key for key in _REPEATED if entry.has_valid(key))
    every = (table for key in keys for table in getattr(entry.settings, key))
    if not any(each.repeat or PLACEHOLDER.search(getattr(each, "at", "") or "") for each in every):
        return entry
    source_paths: dict[KeyPath, KeyPath] = {}
    settings: dict[str, Any] = {}
    for key in _REPEATED:
        if not entry.has_valid(key):
            continue
        copies: list[tuple[int, _Repeatable]] = []
        tables = enumerate(getattr(entry.settings, key))
        for repeat, group in groupby(tables, key=lambda pair: pair[1].repeat):
            if not repeat:
                copies += [(i, _check_single(entry, (key, i), table)) for i, table in group]
                continue
            ((name, count),) = repeat.items()
            valid = [(i, t) for i, t in group if _check_repeated(entry, (key, i), t, name)]
            copies += [
                (i, _copy_table(t, name, number)) for number in range(count) for i, t in valid
            ]
        settings[key] = tuple(table for _, table in copies)
        source_paths |= {(key, new): (key, old) for new, (old, _) in enumerate(copies)}
    expanded = entry.settings.model_copy(update=settings)
    return replace(entry, settings=expanded, source_paths=source_paths)


def expand_layers(key: str, value: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Return a feed with each number of a layer in place of `{layer}`; only keys of `names`.

    A feed without a placeholder is returned as it is.
    """
    layer = PLACEHOLDER.search(key)
    if layer is None:
        return [(key, value)]
    numbers = map(str, range(MAX_COPIES))
    pairs = ((key.replace(layer[0], n), value.replace(layer[0], n)) for n in numbers)
    return [pair for pair in pairs if pair[0] in names]


def _find_texts(table: _Repeatable) -> Mapping[str, str]:
    """Return the texts that may contain a number, by key."""
    texts = {key: getattr(table, key, None) for key in ("name", "at")}
    return {key: text for key, text in texts.items() if isinstance(text, str) and text}


def _check_repeated(
    entry: EffectiveSettings, key_path: KeyPath, table: _Repeatable, name: str
) -> bool:
    """Return whether every copy gets its own name and path; report problems."""
    count = len(entry.report)
    if isinstance(table, InputTable) and not table.name:
        entry.add_problem(
            key_path, f"needs the key 'name' with '{{{name}}}', because it has `repeat`"
        )
    for key, text in _find_texts(table).items():
        placeholders = PLACEHOLDER.findall(text)
        for placeholder in placeholders:
            if placeholder != name:
                hint = suggest_nearest(placeholder, (name,))
                message = f"expected '{{{name}}}' of `repeat`, got '{{{placeholder}}}'{hint}"
                entry.add_problem((*key_path, key), message)
        if not placeholders:
            entry.add_problem(
                (*key_path, key), f"is the same for every copy; add '{{{name}}}' to it"
            )
    return len(entry.report) == count


def _check_single(entry: EffectiveSettings, key_path: KeyPath, table: _Repeatable) -> _Repeatable:
    """Return a table without `repeat`; report a placeholder in its path and replace it by 0."""
    call_path = _find_texts(table).get("at", "")
    placeholders = PLACEHOLDER.findall(call_path)
    for placeholder in placeholders:
        message = f"'{{{placeholder}}}' needs `repeat = {{ {placeholder} = COUNT }}` in this table"
        entry.add_problem((*key_path, "at"), message)
    if not placeholders:
        return table
    return table.model_copy(update={"at": PLACEHOLDER.sub("0", call_path)})


def _copy_table(table: _Repeatable, name: str, number: int) -> _Repeatable:
    def insert_number(text: str) -> str:
        return text.replace(f"{{{name}}}", str(number))

    changes: dict[str, Any] = {key: insert_number(t) for key, t in _find_texts(table).items()}
    if isinstance(table, InputTable | OutputTable):
        changes["shape"] = tuple(
            insert_number(dim) if isinstance(dim, str) else dim for dim in table.shape
        )
    if isinstance(table, InputTable) and isinstance(table.fill, FillTable):
        files = {"file": table.fill.file, "image": table.fill.image}
        numbered = {key: insert_number(text) for key, text in files.items() if text}
        changes["fill"] = table.fill.model_copy(update=numbered)
    return table.model_copy(update=changes)
