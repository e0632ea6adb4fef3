"""The models that need another list of expectations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import tomli

from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import Record
from exporter.tools.expectations.proposal import ExpectEntry, propose_entries

#: For each model ID, the present contract and the complete new list.
ExpectationLists = Mapping[str, tuple[ModelSpec, Sequence[ExpectEntry]]]


def propose_lists(
    manifest: Manifest,
    records: Sequence[Record],
    today: date,
    reason: str,
    texts: Iterable[str],
) -> ExpectationLists:
    """Return the new list of each model with a change.

    A model that inherits a changed list gets its own list, unless the parent's new list is the
    right one for it.
    """
    lists = {spec.id: propose_entries(spec, records, today, reason) for spec in manifest.models}
    changed = {spec.id for spec in manifest.models if _is_changed(lists[spec.id], spec)}
    parents = {
        id: entry["extends"]
        for text in texts
        for id, entry in tomli.loads(text).get("models", {}).items()
        if "expect" not in entry and "extends" in entry
    }

    def is_written(id: str) -> bool:
        ancestor = parents.get(id)
        while ancestor is not None and ancestor not in changed:
            ancestor = parents.get(ancestor)
        if ancestor is None:
            return id in changed
        inherited = [entry.expectation for entry in lists[ancestor]]
        return [entry.expectation for entry in lists[id]] != inherited

    return {spec.id: (spec, lists[spec.id]) for spec in manifest.models if is_written(spec.id)}


def _is_changed(entries: Sequence[ExpectEntry], spec: ModelSpec) -> bool:
    is_same = [entry.index for entry in entries] == list(range(len(spec.expect)))
    return not is_same or any(entry.is_changed for entry in entries)
