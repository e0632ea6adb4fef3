"""Cells whose record does not hold, taken from the store instead of being made again.

In: the cells that would run, and the store. Out: a `StoreHit` for each that was made from what is there
today; later their records and files in `build/<model>`, beside what holds there.

They come in as another run's results do: PyTorch has to say the same of the model (`carry_over`).
What holds in the build folder is never given up for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.carry_over import carry_over, remove_unrecorded_files
from exporter.build.folder.flakiness import mark_flaky
from exporter.cache.store import Store, StoreEntry
from exporter.jobs.job import Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.records.record import CellId, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHit:
    """A cell that the store has."""

    entry: StoreEntry
    why: str
    """Why it would run without the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLookup:
    """What the store says of the cells that would run, by their text."""

    hits: Mapping[str, StoreHit]
    problems: Mapping[str, str]
    """What is wrong with what it has of a cell."""


def look_up(
    store: Store,
    reasons: Mapping[CellId, str],
    parts_of: Callable[[CellId], Mapping[str, str]],
    fits: Callable[[Record], bool],
) -> StoreLookup:
    """Asks the store for cells.

    Args:
        store: Where finished cells are kept.
        reasons: The cells, and why each would run.
        parts_of: The fingerprint of a cell today.
        fits: Whether a record is as good as one that is made today.
    """
    hits, problems = {}, {}
    for cell, why in reasons.items():
        found = store.find(cell, parts_of(cell), fits)
        if found.entry:
            hits[str(cell)] = StoreHit(entry=found.entry, why=why)
        elif found.problem:
            problems[str(cell)] = found.problem
    return StoreLookup(hits=hits, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Whether a record of the build folder still speaks for a promised cell."""

    fully: Callable[[Record], bool]
    for_its_file: Callable[[Record], bool]
    """Whether its file, at least, is the one that would be made."""


def restore(
    job: Job,
    hits: Mapping[str, StoreHit],
    store: Store,
    build: BuildFolder,
    holding: RetentionRules,
) -> dict[str, str]:
    """Puts the cells of one model into place.

    Args:
        job: What would make the cells; its folder is fresh.
        hits: What the store has, by the text of the cell.
        store: The store.
        build: The build folder, locked.
        holding: Which records in place are kept beside them.

    Returns:
        Why a cell has to be made after all, by its text.
    """
    folder, model = JobFolder(Path(job.folder)), job.spec.id
    mine = {str(cell): hits[str(cell)] for cell in job.cells()}
    problems: dict[str, str] = {}
    for index, group in enumerate(_by_reference(mine)):
        into = folder if index == 0 else build.create_folder(model)
        problems |= _fill(into, group, store)
        if index > 0:
            lost = carry_over(into, folder, lambda _: True)
            problems |= dict.fromkeys(_names(lost), "the store has it from another run")
    if not folder.read_records():
        store.adopt(folder.path)
        return problems
    write_json(folder.job, job)
    old = build.model_folder(model)
    mark_flaky(old, folder)
    lost = carry_over(old, folder, lambda r: holding.fully(r) or holding.for_its_file(r))
    if any(holding.fully(record) for record in lost):
        store.adopt(folder.path)
        return dict.fromkeys(mine, "what the store has does not go with what is here")
    build.replace_model(model, folder, store.adopt)
    return problems


def _by_reference(hits: Mapping[str, StoreHit]) -> list[dict[str, StoreHit]]:
    """Cells that were held against the very same answers of PyTorch; the most of them first."""
    groups: dict[str, dict[str, StoreHit]] = {}
    for name, hit in hits.items():
        groups.setdefault(hit.entry.reference, {})[name] = hit
    return sorted(groups.values(), key=len, reverse=True)


def _fill(folder: JobFolder, hits: Mapping[str, StoreHit], store: Store) -> dict[str, str]:
    """Brings files and records; the answer is what is wrong, by the text of the cell."""
    problems = {}
    for name, hit in hits.items():
        if wrong := store.take(hit.entry, folder.path):
            problems[name] = wrong
        else:
            write_json(folder.record(hit.entry.record.cell), hit.entry.record)
    remove_unrecorded_files(folder)
    return problems


def _names(records: Iterable[Record]) -> list[str]:
    return [str(record.cell) for record in records]
