"""A manifest file with other lists of expectations, and nothing else changed.

In: the text of the file, and the new list of each model to change. Out: the new text. Comments and
the form of everything else stay; a comment that stands before a `[[models.ID.expect]]` which is
taken out goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import tomlkit
from tomlkit.items import AoT, Array, InlineTable, Item, Table

from exporter.manifest import ModelSpec
from exporter.tools.expectations.expectation_lists import ExpectationLists
from exporter.tools.expectations.proposal import ExpectEntry, opset_text

_INDENT = "  "


def replace_expectations(text: str, lists: ExpectationLists) -> str:
    """Puts each model's list into the entry of the model.

    Args:
        text: A manifest file that loads.
        lists: By ID, the contract as it is and the whole new list. An entry that inherits its
            expectations gets a list of its own.
    """
    document = tomlkit.parse(text)
    models = cast("Any", document["models"])
    for id, (spec, entries) in lists.items():
        entry = models[id]
        present = entry.get("expect")
        if isinstance(present, AoT):
            _change_tables(present, spec, entries)
        elif isinstance(present, Array):
            entry["expect"] = _changed_array(present, spec, entries)
        else:
            entry["expect"] = _new_array([_inline(item, spec) for item in entries])
        inherits = "extends" in entry or "defaults" in document
        if not entry["expect"] and not inherits:
            del entry["expect"]
    return tomlkit.dumps(document)


def _changed_array(array: Array, spec: ModelSpec, entries: Sequence[ExpectEntry]) -> Array:
    added = _change_present(array, spec, entries)
    if "\n" not in array.as_string():
        return _new_array([*array, *(_inline(entry, spec) for entry in added)])
    found = re.search(r"\n([ \t]+)\S", array.as_string())
    for entry in added:
        array.add_line(_inline(entry, spec), indent=found[1] if found else _INDENT)
    if added:
        array.add_line(indent="", add_comma=False)
    return array


def _new_array(items: Sequence[Any]) -> Array:
    array = tomlkit.array()
    for item in items:
        array.add_line(item, indent=_INDENT)
    if items:
        array.add_line(indent="")
    return array


def _change_tables(tables: AoT, spec: ModelSpec, entries: Sequence[ExpectEntry]) -> None:
    for entry in _change_present(tables, spec, entries):
        table = tomlkit.table()
        table.update(_keys(entry, spec))
        if len(tables):
            _move_end(tables[-1], table)
        tables.append(table)


def _move_end(before: Table, after: Table) -> None:
    """Comments at the end of a table speak of what comes next: they go to the end of the list."""
    ends = []
    while before.value.body and before.value.body[-1][0] is None:
        ends.append(before.value.body.pop())
    before.add(tomlkit.nl())
    after.value.body.extend(reversed(ends))


def _change_present(
    present: Array | AoT, spec: ModelSpec, entries: Sequence[ExpectEntry]
) -> list[ExpectEntry]:
    """Narrows and takes out; the answer is what has to be added."""
    added = [entry for entry in entries if entry.index is None]
    for index in reversed(range(len(present))):
        kept = [entry for entry in entries if entry.index == index]
        if not kept:
            del present[index]
        elif kept[0].is_changed:
            wanted = _keys(kept[0], spec)
            table = cast("Table | InlineTable", present[index])
            for key in ("opset", "device"):
                if key in wanted:
                    table[key] = wanted[key]
        added = [*kept[1:], *added]
    return added


def _inline(entry: ExpectEntry, spec: ModelSpec) -> Item:
    """`{ opset = 13, stage = "convert", reason = "…" }`."""
    pairs = [
        f"{key} = {tomlkit.item(value).as_string()}" for key, value in _keys(entry, spec).items()
    ]
    return cast("Item", tomlkit.parse(f"entry = {{ {', '.join(pairs)} }}")["entry"])


def _keys(entry: ExpectEntry, spec: ModelSpec) -> dict[str, Any]:
    item = entry.expectation
    keys: dict[str, Any] = {}
    if item.opsets is not None:
        keys["opset"] = opset_text(item.opsets, spec.opsets)
    if item.device != "*":
        keys["device"] = item.device
    if item.stage:
        keys["stage"] = item.stage
    keys |= {key: getattr(item, key) for key in ("check", "match") if getattr(item, key)}
    keys["reason"] = item.reason
    keys |= {key: getattr(item, key) for key in ("issue", "until") if getattr(item, key)}
    return keys
