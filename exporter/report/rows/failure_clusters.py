"""The same failure over many cells of many models, once: most cells first.

In: red `Cell`s with their contracts, or findings of the gate. Out: `Cluster`s with the cells that
they hit. A model's own words (its id, its source, its names, its layers' paths) make no other
failure; another operator does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from exporter.core.sanitize import join_lines
from exporter.gate import FindingKind, GateFinding
from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import CellId
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell
from exporter.report.rows.finding_groups import summarize_change
from exporter.report.rows.opset_groups import group_by_opset, mask_numbers
from exporter.report.text.status_marks import Mark

T = TypeVar("T")

#: So many labels of cells stand in a row before only their number does.
_LABELS = 12
#: So many places where models are promised.
_PLACES = 3
#: The folders before a node's name: `/layer1/0/conv1/Conv_3`.
_PATH = re.compile(r"(?<![\w.])/(?:[\w.#-]+/)*")
_COUNTER = re.compile(r"_#(?![\w.])")
_MODEL = "MODEL"
_SHOWN = {"dynamo": "dynamo", "torchscript": "TorchScript"}
_RANK = {kind: rank for rank, kind in enumerate(FindingKind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCells:
    """The cells of a cluster, folded: `alexnet/13-17/cpu`."""

    cells: int
    models: int
    labels: tuple[str, ...]
    more: int
    """How many further labels there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Cells that fail in the same way."""

    mark: Mark
    outcome: str
    operator: str
    """The one that is missing or that differs first; empty where none is known."""
    why: str
    hit: AffectedCells
    places: tuple[str, ...]
    """Where these models are promised."""
    accepted: tuple[str, ...]
    """What the baseline has of these cells; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCluster:
    """Findings that are alike; the first one speaks for all."""

    findings: tuple[GateFinding, ...]
    hit: AffectedCells

    @property
    def first(self) -> GateFinding:
        """The one that speaks."""
        return self.findings[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """One way in which one cell fails."""

    key: Hashable
    cell: Cell
    operator: str
    why: str


def cluster_cells(
    cells: Iterable[Cell], manifest: Manifest, past: AcceptanceHistory | None = None
) -> tuple[Cluster, ...]:
    """Clusters of red cells; one that lacks two operators is in the clusters of both."""
    past = past or AcceptanceHistory()
    words = {spec.id: _own_words(spec) for spec in manifest.models}
    failures = (failure for cell in cells for failure in _failures(cell, words[cell.id.model]))
    groups = _grouped(failures, lambda failure: failure.key)
    found = [_cluster(group, manifest, past) for group in groups]
    return tuple(sorted(found, key=lambda cluster: -cluster.hit.cells))


def cluster_findings(findings: Sequence[GateFinding]) -> tuple[FindingCluster, ...]:
    """Clusters of findings: the worst kind first, then most cells first."""
    groups = _grouped(
        findings,
        lambda found: (
            *summarize_change(found),
            _alike(found.message, {found.cell.model: _MODEL}),
        ),
    )
    clusters = [
        FindingCluster(findings=tuple(group), hit=_hit([found.cell for found in group]))
        for group in groups
    ]
    return tuple(sorted(clusters, key=lambda each: (_RANK[each.first.kind], -each.hit.cells)))


def _failures(cell: Cell, words: Mapping[str, str]) -> Iterator[_Failure]:
    record = cell.record
    if record and record.missing:
        exporter = _SHOWN[record.route.exporter] if record.route else "the exporter"
        for operator in dict.fromkeys(item.operator for item in record.missing):
            why = f"{exporter} has no translation of {operator} at this opset"
            alike = (cell.outcome, operator, exporter)
            yield _Failure(key=alike, cell=cell, operator=operator, why=why)
        return
    blame = record.blame if record else None
    operator = blame.first.operator if blame and blame.first else ""
    culprit = blame.culprit if blame else None
    key = (cell.outcome, operator, culprit, _alike(cell.why, words))
    yield _Failure(key=key, cell=cell, operator=operator, why=cell.why)


def _cluster(group: Sequence[_Failure], manifest: Manifest, past: AcceptanceHistory) -> Cluster:
    first = group[0]
    hit = _hit([failure.cell.id for failure in group])
    same = all(failure.why == first.why for failure in group)
    return Cluster(
        mark=first.cell.mark,
        outcome=first.cell.outcome,
        operator=first.operator,
        why=first.why if same else f"{first.why} (as {first.cell.id} says it)",
        hit=hit,
        places=list_locations([failure.cell.id for failure in group], manifest),
        accepted=tuple(dict.fromkeys(filter(None, (past.accepted(each.cell) for each in group)))),
    )


def list_locations(cells: Iterable[CellId], manifest: Manifest) -> tuple[str, ...]:
    """Where the models of these cells are promised: `manifests/vision.toml:14`, and some more."""
    known = {spec.id: spec.location for spec in manifest.models}
    models = dict.fromkeys(cell.model for cell in cells)
    places = [join_lines(str(known[model])) for model in models if model in known]
    more = len(places) - _PLACES
    return (*places[:_PLACES], *((f"and {more} more",) if more > 0 else ()))


def _hit(cells: Sequence[CellId]) -> AffectedCells:
    folds = group_by_opset(cells, lambda cell: cell, lambda _: None)
    labels = tuple(same.label for same in folds)
    return AffectedCells(
        cells=len(cells),
        models=len({cell.model for cell in cells}),
        labels=labels[:_LABELS],
        more=max(0, len(labels) - _LABELS),
    )


def _grouped(items: Iterable[T], key_of: Callable[[T], Hashable]) -> Iterable[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups.values()


def _alike(message: str, words: Mapping[str, str]) -> str:
    """`message` without what is the model's own, so that another model's is equal."""
    pattern = _pattern(tuple(sorted(words, key=len, reverse=True)))
    message = pattern.sub(lambda found: words[found.group()], message)
    return _COUNTER.sub("", _PATH.sub("/…/", mask_numbers(message)))


@lru_cache(maxsize=64)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<![\w.]){re.escape(word)}(?!\w)" for word in words))


def _own_words(spec: ModelSpec) -> Mapping[str, str]:
    """The names of a contract. An input may be called `in`: its name counts in quotes alone."""
    file, _, attribute = spec.source.partition(":")
    names = [end.name for end in (*spec.inputs, *spec.outputs)]
    names += [axis.name for axis in spec.axes]
    words = {f"'{name}'": "NAME" for name in names}
    words |= {word: "SOURCE" for word in (spec.source, file, file.rpartition("/")[2]) if word}
    words[spec.id] = _MODEL
    if attribute:
        words[attribute] = "SOURCE"
    return words
