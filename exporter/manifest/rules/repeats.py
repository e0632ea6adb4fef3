"""Tables with `repeat` in, one table for each copy out, in the order of the graph.

Tables next to each other that repeat alike take turns, as the layers of a cache do: `past.0.key`,
`past.0.value`, `past.1.key`. Problems of a copy are told where its table stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.containers import ContainerTable
from exporter.manifest.schema.fields import PLACEHOLDER
from exporter.manifest.schema.tables import (
    ConstantTable,
    FillTable,
    InputTable,
    OutputTable,
)
from exporter.manifest.syntax.message_format import KeyPath

_Repeating: TypeAlias = "InputTable | OutputTable | ConstantTable | ContainerTable"

#: The keys of an entry whose tables may repeat.
_KEYS = ("inputs", "outputs", "constants", "containers")


def expand_repeats(model: EffectiveSettings) -> EffectiveSettings:
    """The model with every copy as a table of its own."""
    written: dict[KeyPath, KeyPath] = {}
    settings: dict[str, Any] = {}
    for key in _KEYS:
        if not model.has(key):
            continue
        tables: Sequence[_Repeating] = getattr(model.settings, key)
        copies = list(_copies(model, key, tables))
        settings[key] = tuple(table for _, table in copies)
        written |= {(key, new): (key, old) for new, (old, _) in enumerate(copies)}
    return replace(model, settings=model.settings.model_copy(update=settings), written=written)


def _copies(
    model: EffectiveSettings, key: str, tables: Sequence[_Repeating]
) -> Iterator[tuple[int, _Repeating]]:
    """Each table of the result, with the index at which it was written."""
    for repeat, group in groupby(enumerate(tables), key=lambda pair: pair[1].repeat):
        members = list(group)
        if not repeat:
            yield from ((i, _without_numbers(model, (key, i), table)) for i, table in members)
            continue
        ((name, count),) = repeat.items()
        sound = [(i, t) for i, t in members if _is_sound(model, (key, i), t, name)]
        for number in range(count):
            yield from ((index, _copy(table, name, number)) for index, table in sound)


def _texts(table: _Repeating) -> Mapping[str, str]:
    """Where a number can stand, by key."""
    texts = {key: getattr(table, key, None) for key in ("name", "at")}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _is_sound(model: EffectiveSettings, place: KeyPath, table: _Repeating, name: str) -> bool:
    """Whether every copy gets a name and a place of its own."""
    before = len(model.report)
    for key, text in _texts(table).items():
        used = PLACEHOLDER.findall(text)
        for other in used:
            if other != name:
                hint = suggest_nearest(other, (name,))
                message = f"'{{{other}}}' is not what repeats here, '{{{name}}}' is{hint}"
                model.add_problem((*place, key), message)
        if not used:
            model.add_problem(
                (*place, key), f"is the same for every copy: put '{{{name}}}' into it"
            )
    return len(model.report) == before


def _without_numbers(model: EffectiveSettings, place: KeyPath, table: _Repeating) -> _Repeating:
    """A table that does not repeat; where its place has a number all the same, that is reported."""
    at = _texts(table).get("at", "")
    found = PLACEHOLDER.findall(at)
    for other in found:
        message = f"'{{{other}}}' needs `repeat = {{ {other} = COUNT }}` beside it"
        model.add_problem((*place, "at"), message)
    return table.model_copy(update={"at": PLACEHOLDER.sub("0", at)}) if found else table


def _copy(table: _Repeating, name: str, number: int) -> _Repeating:
    def numbered(text: str) -> str:
        return text.replace(f"{{{name}}}", str(number))

    changes: dict[str, Any] = {key: numbered(text) for key, text in _texts(table).items()}
    if isinstance(table, InputTable | OutputTable):
        changes["shape"] = tuple(
            numbered(dim) if isinstance(dim, str) else dim for dim in table.shape
        )
    if isinstance(table, InputTable) and isinstance(table.fill, FillTable) and table.fill.file:
        file = numbered(table.fill.file)
        changes["fill"] = table.fill.model_copy(update={"file": file})
    return table.model_copy(update=changes)
