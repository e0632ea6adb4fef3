"""Changes of the model that an entry defines: source, weights, options, contents of data files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import BaseModel

from exporter.manifest import ModelSpec
from exporter.records.record import CellId

#: Keys that define the model and its export.
DEFINING_KEYS = frozenset(
    {
        *("source", "weights", "weights_sha256", "init", "seed", "export_device", "export_state"),
        *("artifact", "options", "custom_ops", "containers", "depends"),
    }
)
#: The hashes of data files by model and by path.
DataHashes: TypeAlias = Mapping[str, Mapping[str, str]]
#: Digits of a hash in a message.
_DIGITS = 12
#: Characters of a value in a message.
_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Change:
    """One changed key of an entry."""

    before: str
    after: str


def compare_definitions(
    old: ModelSpec,
    new: ModelSpec,
    cell: CellId,
    hashes: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> Iterator[Change]:
    """Yield each key that defines another model or another export.

    Args:
        old: The entry at the revision.
        new: The current entry.
        cell: A cell of both.
        hashes: The hashes of the entry's data files at the revision and now, by their paths. A
            file that one side lacks is not compared: large files are often outside of git.
    """
    before, after = (spec.resolve_cell(cell.opset, cell.device) for spec in (old, new))
    for key in sorted(DEFINING_KEYS):
        values = getattr(before, key), getattr(after, key)
        if values[0] != values[1]:
            yield Change(*(f"{key}: {_format_value(value)}" for value in values))
    for file in sorted(hashes[0].keys() & hashes[1].keys()):
        digests = [side[file] for side in hashes]
        if digests[0] != digests[1]:
            yield Change(*(f"content of {file}: {digest[:_DIGITS]}" for digest in digests))


def _format_value(value: object) -> str:
    match value:
        case BaseModel():
            fields = value.model_dump(exclude_defaults=True)
            text = ", ".join(f"{key} = {each}" for key, each in fields.items()) or "default"
        case tuple():
            text = ", ".join(_format_value(each) for each in value) or "none"
        case Mapping():
            text = ", ".join(f"{key} = {value[key]!r}" for key in sorted(value)) or "none"
        case _:
            text = "none" if value in (None, "") else str(value)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."
