"""An editor of manifest files that changes only lists of expectations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import tomlkit
from tomlkit.items import AoT, Array, InlineTable, Item, Table

from exporter.manifest import ModelSpec
from exporter.tools.expectations.expectation_lists import ExpectationLists
from exporter.tools.expectations.proposal import ExpectEntry, format_opset_condition

_INDENT = "  "


def replace_expectations(text: str, lists: ExpectationLists) -> str:
    """Write each list into the entry of its model; remove the key if the list is empty.

    Args:
        text: A valid manifest file.
        lists: For each model ID, the present contract and the complete new list. An entry
            gets its own list if it inherits its expectations.
    """
    document = tomlkit.parse(text)
    models = cast("Any", document["models"])
    for id, (spec, entries) in lists.items():
        entry = models[id]
        present = entry.get("expect")
        if isinstance(present, AoT):
            _change_tables(present, spec, entries)
        elif isinstance(present, Array):
            entry["expect"] = _change_array(present, spec, entries)
        else:
            entry["expect"] = _create_array([_create_inline(item, spec) for item in entries])
        inherits = "extends" in entry or "defaults" in document
        if not entry["expect"] and not inherits:
            del entry["expect"]
    return tomlkit.dumps(document)


def _change_array(array: Array, spec: ModelSpec, entries: Sequence[ExpectEntry]) -> Array:
    added = [_create_inline(entry, spec) for entry in _change_present(array, spec, entries)]
    if "\n" not in array.as_string():
        return _create_array([*array, *added])
    match = re.search(r"\n([ \t]+)\S", array.as_string())
    for item in added:
        array.add_line(item, indent=match[1] if match else _INDENT)
    if added:
        array.add_line(indent="", add_comma=False)
    return array


def _create_array(items: Sequence[Any]) -> Array:
    array = tomlkit.array()
    for item in items:
        array.add_line(item, indent=_INDENT)
    if items:
        array.add_line(indent="")
    return array


def _change_tables(tables: AoT, spec: ModelSpec, entries: Sequence[ExpectEntry]) -> None:
    for entry in _change_present(tables, spec, entries):
        table = tomlkit.table()
        table.update(_format_keys(entry, spec))
        if len(tables):
            _move_final_comments(tables[-1], table)
        tables.append(table)


def _move_final_comments(before: Table, after: Table) -> None:
    """Move comments at the end of a table, because they belong to the next section."""
    comments = []
    while before.value.body and before.value.body[-1][0] is None:
        comments.append(before.value.body.pop())
    before.add(tomlkit.nl())
    after.value.body.extend(reversed(comments))


def _change_present(
    present: Array | AoT, spec: ModelSpec, entries: Sequence[ExpectEntry]
) -> list[ExpectEntry]:
    """Narrow and remove present items and return the entries to add."""
    added = [entry for entry in entries if entry.index is None]
    for index in reversed(range(len(present))):
        remaining = [entry for entry in entries if entry.index == index]
        if not remaining:
            del present[index]
        elif remaining[0].is_changed:
            keys = _format_keys(remaining[0], spec)
            table = cast("Table | InlineTable", present[index])
            for key in ("opset", "device", "toolchain"):
                if key in keys:
                    table[key] = keys[key]
        added = [*remaining[1:], *added]
    return added


def _create_inline(entry: ExpectEntry, spec: ModelSpec) -> Item:
    """Return `{ opset = 13, stage = "convert", reason = "…" }`."""
    pairs = [
        f"{key} = {tomlkit.item(value).as_string()}"
        for key, value in _format_keys(entry, spec).items()
    ]
    return cast("Item", tomlkit.parse(f"entry = {{ {', '.join(pairs)} }}")["entry"])


def _format_keys(entry: ExpectEntry, spec: ModelSpec) -> dict[str, Any]:
    item = entry.expectation
    keys: dict[str, Any] = {}
    if item.opsets is not None:
        keys["opset"] = format_opset_condition(item.opsets, spec.opsets)
    if item.device != "*":
        keys["device"] = item.device
    if item.toolchain != "*":
        keys["toolchain"] = item.toolchain
    if item.stage:
        keys["stage"] = item.stage
    if item.checks:
        keys["check"] = item.checks[0] if len(item.checks) == 1 else list(item.checks)
    if item.match:
        keys["match"] = item.match
    keys["reason"] = item.reason
    keys |= {key: getattr(item, key) for key in ("issue", "until", "torch") if getattr(item, key)}
    return keys
