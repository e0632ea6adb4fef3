"""Which models need another list of expectations.

In: the manifest, the records, a date, and the text of each manifest file. Out: the new lists by ID.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date

import tomli

from exporter.manifest import Expectation, Manifest, ModelSpec
from exporter.records.record import Record
from exporter.tools.expectations.proposal import ExpectEntry, propose_entries

#: By ID, the contract as it is and the whole new list.
ExpectationLists = Mapping[str, tuple[ModelSpec, Sequence[ExpectEntry]]]


def propose_lists(
    manifest: Manifest,
    records: Sequence[Record],
    today: date,
    reason: str,
    texts: Iterable[str],
) -> ExpectationLists:
    """The lists that the results would meet, of the models whose list is another.

    A model that inherits its expectations from one of these gets a list of its own, unless the
    parent's new one is what it needs.
    """
    found = {spec.id: propose_entries(spec, records, today, reason) for spec in manifest.models}
    others = {spec.id for spec in manifest.models if _is_other(found[spec.id], spec)}
    parents = dict(_parents(texts))

    def is_written(id: str) -> bool:
        heir_of = _changed_parent(id, parents, others)
        if not heir_of:
            return id in others
        return _expectations(found[id]) != _expectations(found[heir_of])

    return {spec.id: (spec, found[spec.id]) for spec in manifest.models if is_written(spec.id)}


def _expectations(entries: Sequence[ExpectEntry]) -> list[Expectation]:
    return [entry.expectation for entry in entries]


def _is_other(entries: Sequence[ExpectEntry], spec: ModelSpec) -> bool:
    same = [entry.index for entry in entries] == list(range(len(spec.expect)))
    return not same or any(entry.is_changed for entry in entries)


def _parents(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Whose expectations a model has, where it has none of its own."""
    for text in texts:
        for id, entry in tomli.loads(text).get("models", {}).items():
            if "expect" not in entry and "extends" in entry:
                yield id, entry["extends"]


def _changed_parent(id: str, parents: Mapping[str, str], others: Collection[str]) -> str:
    """The nearest model that it inherits from and whose list changes; empty where there is none."""
    while id in parents:
        id = parents[id]
        if id in others:
            return id
    return ""
