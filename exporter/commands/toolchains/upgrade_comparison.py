"""Comparison of the results with other packages with the results in place, and its page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.text import DEFAULT_COMMAND, pluralize
from exporter.gate.baseline_comparison import compare_baselines
from exporter.gate.finding import NO_RESULT, GateFinding
from exporter.manifest import FindingKind, Gate
from exporter.manifest.syntax.releases import find_first_release, format_release
from exporter.manifest.syntax.values import ExporterName
from exporter.records.baseline import make_baseline
from exporter.records.record import CellId, Record, RunRecord, Status, format_outcome
from exporter.report.formats import clean_message
from exporter.report.pages.templates import render
from exporter.report.rows.cells import OpsetGroup, group_by_opset, mask_numbers
from exporter.report.rows.gate_rows import build_finding_rows, format_operator_changes

#: Findings that need a new acceptance after the upgrade. They lose nothing, or an expectation with
#: `torch` foresees the loss: any other one would also apply to the results in place.
_HARMLESS = (FindingKind.XPASS, FindingKind.CHANGED, FindingKind.NEWLY_EXPECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file with other bytes than the file in place."""

    cell: CellId
    change: str
    """`+2 Cast, -1 Identity`; empty if the operators are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """The outcome of a cell in both results."""

    cell: CellId
    before: str
    after: str
    """`error at convert`, or the text for a cell without a result."""
    is_green: bool
    """Whether the file passes in the later result, also if the manifest expects a failure."""
    message: str
    runtime: str
    """`1.9 -> 1.18`: the first release of ONNX Runtime that loads the file, if it is newer."""

    @property
    def text(self) -> str:
        """The outcomes, and the release that the file needs."""
        change = self.after if self.after == self.before else f"{self.before} -> {self.after}"
        return f"{change}, ONNX Runtime {self.runtime}" if self.runtime else change


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeComparison:
    """The differences between two results of the same cells."""

    cells: int
    before: dict[str, str]
    """The tools of the results in place."""
    after: dict[str, str]
    findings: tuple[GateFinding, ...]
    """The blocking ones first."""
    files: int
    """The number of files that both results have."""
    changed_files: tuple[FileChange, ...]
    outcomes: tuple[CellChange, ...]
    """One for each selected cell."""

    @property
    def changed_tools(self) -> dict[str, tuple[str, str]]:
        """The tools with different versions, each with both versions."""
        names = sorted(self.before.keys() | self.after.keys())
        versions = {name: (self.before.get(name, "?"), self.after.get(name, "?")) for name in names}
        return {name: (old, new) for name, (old, new) in versions.items() if old != new}

    @property
    def regressions(self) -> tuple[GateFinding, ...]:
        """The findings that fail a rehearsal."""
        return tuple(each for each in self.findings if each.is_blocking and not each.is_improvement)


def compare_upgrade(
    before: RunRecord, after: RunRecord, cells: AbstractSet[CellId], gate: Gate
) -> UpgradeComparison:
    """Compare the selected cells of two results."""
    old, new = _select_cells(before, cells), _select_cells(after, cells)
    findings = compare_baselines(make_baseline(old), make_baseline(new), new.by_cell(), gate)
    known, current = old.by_cell(), new.by_cell()
    in_order = sorted(cells, key=lambda cell: cell.sort_key)
    # No comparison of results can show the cells without any result.
    findings += tuple(
        GateFinding(kind=FindingKind.MISSING, cell=cell, before=NO_RESULT, after=NO_RESULT)
        for cell in in_order
        if cell not in known and cell not in current
    )
    compared = 0
    changed_files = []
    for cell, record in current.items():
        was, now = known[cell].artifact if cell in known else None, record.artifact
        if was and now:
            compared += 1
            if was.sha256 != now.sha256 or was.external_data != now.external_data:
                change = format_operator_changes(was.operators, now.operators)
                changed_files.append(FileChange(cell=cell, change=change))
    return UpgradeComparison(
        cells=len(cells),
        before=before.tools,
        after=after.tools,
        findings=tuple(
            replace(each, action="warn") if each.kind in _HARMLESS and each.is_blocking else each
            for each in findings
        ),
        files=compared,
        changed_files=tuple(changed_files),
        outcomes=tuple(
            _compare_outcomes(cell, known.get(cell), current.get(cell)) for cell in in_order
        ),
    )


def _compare_outcomes(cell: CellId, before: Record | None, after: Record | None) -> CellChange:
    artifacts = [each.artifact for each in (before, after) if each is not None and each.artifact]
    releases = [find_first_release(cell.opset, each.ir_version) for each in artifacts]
    runtime = ""
    if len(releases) == 2 and releases[0] and releases[1] and releases[0] < releases[1]:
        runtime = " -> ".join(format_release(each) for each in releases if each)
    return CellChange(
        cell=cell,
        before=format_record(before),
        after=format_record(after),
        is_green=after is not None and after.status in (Status.PASS, Status.XPASS),
        message=after.message if after is not None else "",
        runtime=runtime,
    )


def format_record(record: Record | None) -> str:
    """Return the outcome of a record: `error at convert`."""
    if record is None:
        return NO_RESULT
    checks = (record.check,) if record.check else ()
    return format_outcome(record.status, record.stage, checks)


def _select_cells(run: RunRecord, cells: AbstractSet[CellId]) -> RunRecord:
    records = tuple(record for record in run.records if record.cell in cells)
    return RunRecord(tools=run.tools, records=records)


def format_rehearsal_json(
    requirements: Sequence[str],
    comparison: UpgradeComparison,
    exporter: ExporterName | None = None,
) -> str:
    regressions = set(comparison.regressions)
    fields = ("before", "after", "message")
    report = {
        "format": 1,
        "requirements": requirements,
        "exporter": exporter or "",  # empty if the manifests choose it
        "before": comparison.before,
        "after": comparison.after,
        "cells": comparison.cells,
        "regressions": len(regressions),
        "findings": [
            {"kind": each.kind.key, "cell": str(each.cell)}
            | {name: getattr(each, name) for name in fields}
            | {"action": each.action, "is_regression": each in regressions}
            for each in comparison.findings
        ],
        "files": comparison.files,
        "changed_files": [
            {"cell": str(each.cell), "operators": each.change} for each in comparison.changed_files
        ],
        "outcomes": [
            {"cell": str(each.cell)} | {name: getattr(each, name) for name in (*fields, "runtime")}
            for each in comparison.outcomes
        ],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def render_rehearsal(
    requirements: Sequence[str],
    comparison: UpgradeComparison,
    templates: Path | None = None,
    command: str = DEFAULT_COMMAND,
    exporter: ExporterName | None = None,
) -> str:
    """Return the comparison as markdown.

    Raises:
        ExporterError: MANIFEST, if the template is invalid.
    """
    return render(
        "rehearsal.md",
        templates,
        "emoji",
        command,
        requirements=requirements,
        comparison=comparison,
        findings=build_finding_rows(comparison.findings),
        operators=group_operator_changes(comparison),
        outcomes=group_outcomes(comparison) if exporter else (),
        summary=summarize_outcomes(comparison, exporter) if exporter else "",
    )


def group_outcomes(comparison: UpgradeComparison) -> tuple[OpsetGroup[CellChange], ...]:
    """Return the outcomes, in groups that differ only in the opset."""
    shortened = (replace(each, message=clean_message(each.message)) for each in comparison.outcomes)
    return group_by_opset(
        shortened, lambda each: each.cell, lambda each: (each.text, mask_numbers(each.message))
    )


def summarize_outcomes(comparison: UpgradeComparison, exporter: ExporterName) -> str:
    """Return the numbers of the cells that survive, fail and need another runtime."""
    red = [each for each in comparison.outcomes if not each.is_green]
    older = sum(bool(each.runtime) for each in comparison.outcomes if each.is_green)
    green = len(comparison.outcomes) - len(red)
    stages = Counter(each.after for each in red)
    reasons = ", ".join(f"{count} {text}" for text, count in stages.most_common())
    return (
        f"{green} of {pluralize(len(comparison.outcomes), 'cell')} pass by {exporter}, "
        f"{older} of them with a newer ONNX Runtime; {len(red)} fail"
        + (f" ({reasons})" if reasons else "")
    )


def group_operator_changes(comparison: UpgradeComparison) -> tuple[OpsetGroup[FileChange], ...]:
    """Return the files with other operators, in groups that differ only in the opset."""
    changes = [each for each in comparison.changed_files if each.change]
    return group_by_opset(changes, lambda each: each.cell, lambda each: each.change)
