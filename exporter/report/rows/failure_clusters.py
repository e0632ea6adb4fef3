"""Clusters of equal failures and findings over many cells and models."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from exporter.core.text import join_lines
from exporter.gate.finding import GROWTH_KINDS, NOT_ACCEPTED, FindingKind, GateFinding
from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import CellId, Record
from exporter.report.rows.cells import (
    AS_ACCEPTED,
    AcceptanceHistory,
    Cell,
    OpsetGroup,
    Row,
    format_export_command,
    group_by_opset,
    mask_numbers,
)
from exporter.report.rows.failures import FailureReasons, explain_failure

T = TypeVar("T")

#: The number of labels of cells in one row; further labels are counted.
_LISTED_LABELS = 12
#: The number of manifest locations in one row.
_LISTED_LOCATIONS = 3
#: The folders of a node's name: `/layer1/0/conv1/Conv_3`.
_PATH = re.compile(r"(?<![\w.])/(?:[\w.#-]+/)*")
_COUNTER = re.compile(r"_#(?![\w.])")
_MODEL = "MODEL"
_EXPORTERS = {
    "dynamo": "dynamo",
    "torchscript": "TorchScript",
    "transformers": "transformers",
    "file": "the finished file",
}
_RANK = {kind: rank for rank, kind in enumerate(FindingKind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCells:
    """The cells of a cluster, grouped by opset: `alexnet/13..17/cpu`."""

    cells: int
    models: int
    labels: tuple[str, ...]
    more: int
    """The number of further labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCluster:
    """Equal findings; the first one represents them."""

    findings: tuple[GateFinding, ...]
    affected: AffectedCells

    @property
    def first(self) -> GateFinding:
        """The finding that represents the cluster."""
        return self.findings[0]


#: One failure of one cell: the key of its cluster, the cell, the operator and the reason.
_Failure = tuple[Hashable, Cell, str, str]


def cluster_cells(
    cells: Iterable[Cell], manifest: Manifest, history: AcceptanceHistory | None = None
) -> tuple[Row, ...]:
    """Return clusters of red cells, those with new failures first, then the largest.

    A cell with two missing operators is in two clusters.
    """
    command = manifest.project.command
    history = history or AcceptanceHistory()
    names = {spec.id: _collect_names(spec) for spec in manifest.models}
    failures = (each for cell in cells for each in _list_failures(cell, names[cell.id.model]))
    clusters: list[Row] = []
    for group in _group(failures, lambda failure: failure[0]):
        _, first, operator, reason = group[0]
        is_same = all(other == reason for *_, other in group)
        ids = tuple(cell.id for _, cell, _, _ in group)
        accepted = (history.find_outcome(cell) for _, cell, _, _ in group)
        record = first.record
        reasons = explain_failure(record, command) if record else FailureReasons()
        outcomes = tuple(dict.fromkeys(filter(None, accepted)))
        clusters.append(
            {
                "mark": first.mark,
                "outcome": first.outcome,
                # The missing operator, or the first one that differs; empty if it is unknown.
                "operator": operator,
                "reason": reason if is_same else f"{reason} (text of {first.id})",
                "affected": count_cells(ids),
                "locations": list_locations(ids, manifest),
                # In the baseline; empty without one.
                "accepted": outcomes,
                "is_new": any(outcome != AS_ACCEPTED for outcome in outcomes),
                "cell": str(first.id),
                "model": first.id.model,
                "members": ids,
                # Of the first cell, which represents the others.
                "lines": reasons.lines,
                "export_command": format_export_command(str(first.id), command),
                "repro_command": reasons.repro_command,
            }
        )
    return tuple(sorted(clusters, key=lambda each: (not each["is_new"], -each["affected"].cells)))


def cluster_findings(findings: Sequence[GateFinding]) -> tuple[FindingCluster, ...]:
    """Return clusters of findings: the worst kind first, then the largest cluster."""
    groups = _group(
        findings,
        lambda finding: (
            *summarize_change(finding),
            str(finding.cause or ""),
            _mask_names(finding.message, {finding.cell.model: _MODEL}),
        ),
    )
    clusters = [
        FindingCluster(
            findings=tuple(group),
            affected=count_cells([cell for finding in group for cell in finding.cells]),
        )
        for group in groups
    ]
    return tuple(sorted(clusters, key=lambda each: (_RANK[each.first.kind], -each.affected.cells)))


def group_findings(findings: Sequence[GateFinding]) -> tuple[OpsetGroup[GateFinding], ...]:
    """Group findings that differ only in their opset; numbers in messages are ignored."""
    return group_by_opset(
        findings,
        lambda finding: finding.cell,
        lambda finding: (
            *summarize_change(finding),
            str(finding.cause or ""),
            mask_numbers(finding.message),
        ),
    )


def summarize_change(finding: GateFinding) -> tuple[Hashable, ...]:
    """Return a key for the change; for growth without figures, which differ by opset."""
    change = (finding.before, finding.after)
    if finding.kind in GROWTH_KINDS:
        change = (finding.cell.model, "")
    return (finding.kind, finding.action, finding.setting, *change)


def name_subject(group: OpsetGroup[GateFinding]) -> str:
    """Return the cells of equal findings, or the place of a setting."""
    setting = group.first.setting
    return str(setting.location) if setting else group.label


def _list_failures(cell: Cell, names: Mapping[str, str]) -> Iterator[_Failure]:
    record = cell.record
    if record and record.missing:
        exporter = _EXPORTERS[record.route.exporter] if record.route else "the exporter"
        for operator in dict.fromkeys(item.operator for item in record.missing):
            reason = f"{exporter} has no translation of {operator} at this opset"
            key: Hashable = (cell.outcome, operator, exporter)
            yield key, cell, operator, reason
        return
    blame = record.blame if record else None
    operator = blame.first.operator if blame and blame.first else ""
    culprit = blame.culprit if blame else None
    key = (cell.outcome, operator, culprit, _mask_names(cell.reason, names))
    yield key, cell, operator, cell.reason


def list_locations(cells: Iterable[CellId], manifest: Manifest) -> tuple[str, ...]:
    """Return the entries of the cells' models: `manifests/vision.toml:14`, `and 2 more`."""
    known = {spec.id: spec.location for spec in manifest.models}
    models = dict.fromkeys(cell.model for cell in cells)
    locations = [join_lines(str(known[model])) for model in models if model in known]
    more = len(locations) - _LISTED_LOCATIONS
    return (*locations[:_LISTED_LOCATIONS], *((f"and {more} more",) if more > 0 else ()))


def count_cells(cells: Sequence[CellId]) -> AffectedCells:
    """Return the labels of cells, grouped by opset."""
    groups = group_by_opset(cells, lambda cell: cell, lambda _: None)
    labels = tuple(group.label for group in groups)
    return AffectedCells(
        cells=len(cells),
        models=len({cell.model for cell in cells}),
        labels=labels[:_LISTED_LABELS],
        more=max(0, len(labels) - _LISTED_LABELS),
    )


def _group(items: Iterable[T], key_of: Callable[[T], Hashable]) -> Iterable[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups.values()


def _mask_names(message: str, names: Mapping[str, str]) -> str:
    """Return the message without names and numbers of the model, to compare it with others."""
    pattern = _compile_names(tuple(sorted(names, key=len, reverse=True)))
    message = pattern.sub(lambda match: names[match.group()], message)
    return _COUNTER.sub("", _PATH.sub("/…/", mask_numbers(message)))


@lru_cache(maxsize=64)
def _compile_names(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names))


def _collect_names(spec: ModelSpec) -> Mapping[str, str]:
    """Return the names of a contract, with their replacements.

    Only quoted occurrences of input and axis names are replaced, because they can be short words.
    """
    file, _, attribute = spec.source.partition(":")
    quoted = [item.name for item in (*spec.inputs, *spec.outputs)]
    quoted += [axis.name for axis in spec.axes]
    names = {f"'{name}'": "NAME" for name in quoted}
    names |= {name: "SOURCE" for name in (spec.source, file, file.rpartition("/")[2]) if name}
    names[spec.id] = _MODEL
    if attribute:
        names[attribute] = "SOURCE"
    return names


_GREEN = ("pass", "xfail")
#: Lines of a difference on a page.
_DIFF_LINES = 60
_DIFF_HEADERS = ("diff --git ", "index ", "--- ", "old mode ", "new mode ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext:
    """The state of a project at the time of its gate."""

    manifest: Manifest
    records: Mapping[CellId, Record] = field(default_factory=dict)
    accepted_in: str = ""
    """Commit and date of the baseline: `2a9548ebe314 of 2026-11-21`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingContext:
    """The facts about a finding; a field is empty if its content is unknown."""

    code: str = ""
    """The code of the failure, `E-axis-fixed`."""
    settings: str = ""
    """The key of the gate's policy: `pyproject.toml:12`."""
    locations: tuple[str, ...] = ()
    """The entries of the models: `manifests/vision.toml:14`."""
    lines: tuple[str, ...] = ()
    """Lines of the model: `models/vision.py:31`."""
    acceptance: str = ""
    """`last green in 2a9548ebe314 of 2026-11-21`."""
    export_command: str = ""
    repro_command: str = ""
    diff: str = ""
    """The difference of the model's files since the acceptance."""


def find_context(findings: Sequence[GateFinding], context: GateContext) -> FindingContext:
    """Return the facts about equal findings."""
    first = findings[0]
    if first.setting:  # a failure of its cells has a finding of its own
        return FindingContext(settings=str(first.setting.location))
    record = context.records.get(first.cell)
    command = context.manifest.project.command
    is_promised = any(spec.id == first.cell.model for spec in context.manifest.models)
    reasons = explain_failure(record, command) if record else FailureReasons()
    # A relaxed promise and a removed cell have no failure to show.
    has_failure = record is not None and first.kind is not FindingKind.RELAXED and is_promised
    return FindingContext(
        code=reasons.code if has_failure else "",
        locations=list_locations([finding.cell for finding in findings], context.manifest),
        lines=tuple(join_lines(line) for line in reasons.lines) if has_failure else (),
        acceptance=_describe_acceptance(first, context.accepted_in),
        export_command=format_export_command(str(first.cell), command) if is_promised else "",
        repro_command=reasons.repro_command if has_failure else "",
        diff=shorten_diff(first.cause.diff, _DIFF_LINES) if first.cause else "",
    )


def shorten_diff(diff: str, limit: int) -> str:
    """Return the changed lines of a difference with their context, at most `limit` lines."""
    lines = [line for line in diff.splitlines() if not line.startswith(_DIFF_HEADERS)]
    more = len(lines) - limit
    return "\n".join(lines[:limit]) + (f"\n… and {more} more lines" if more > 0 else "")


def _describe_acceptance(finding: GateFinding, accepted_in: str) -> str:
    if finding.before == NOT_ACCEPTED:
        return "new: it was never accepted"
    if not accepted_in or finding.kind is FindingKind.RELAXED:
        return ""
    if finding.before.split(maxsplit=1)[0] in _GREEN:
        return f"last green in {accepted_in}"
    return f"accepted in {accepted_in}: {join_lines(finding.before)}"
