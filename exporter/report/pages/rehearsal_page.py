"""The report of a rehearsal: markdown for people, and JSON for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import DEFAULT_COMMAND, pluralize
from exporter.gate.upgrade_comparison import CellChange, FileChange, UpgradeComparison
from exporter.manifest import Action
from exporter.manifest.resolved.model import ExporterName
from exporter.records.baseline import CellText
from exporter.report.formats import clean_message
from exporter.report.rows.cells import OpsetGroup, group_by_opset, mask_numbers
from exporter.report.rows.failure_clusters import cluster_findings

_TEMPLATE = "rehearsal.md"


class ReportedFinding(FrozenModel):
    """A finding in the JSON form."""

    kind: str
    """The key of the finding in `[tool.exporter.gate]`."""
    cell: CellText
    before: str
    after: str
    message: str
    action: Action
    is_regression: bool


class ReportedFile(FrozenModel):
    """A file that differs from the one in place, in the JSON form."""

    cell: CellText
    operators: str
    """`+2 Cast, -1 Identity`; empty if only other content differs."""


class ReportedOutcome(FrozenModel):
    """The outcome of a cell in the JSON form."""

    cell: CellText
    before: str
    after: str
    message: str
    runtime: str
    """`1.9 -> 1.18`: the file needs a newer ONNX Runtime; empty if it does not."""


class RehearsalReport(FrozenModel):
    """The JSON form of a rehearsal."""

    format: Literal[1] = 1
    requirements: Items[str]
    exporter: str = ""
    """The exporter of all cells; empty if the manifests choose it."""
    before: dict[str, str]
    """The tools of the results in place."""
    after: dict[str, str]
    cells: int
    regressions: int
    findings: Items[ReportedFinding]
    files: int
    """The number of files that both results have."""
    changed_files: Items[ReportedFile]
    outcomes: Items[ReportedOutcome]
    """For each cell."""


def format_rehearsal_json(
    requirements: Sequence[str],
    comparison: UpgradeComparison,
    exporter: ExporterName | None = None,
) -> str:
    """Return the comparison as JSON."""
    regressions = set(comparison.regressions)
    report = RehearsalReport.from_fields(
        comparison,
        requirements=tuple(requirements),
        exporter=exporter or "",
        regressions=len(regressions),
        findings=tuple(
            ReportedFinding.from_fields(each, kind=each.kind.key, is_regression=each in regressions)
            for each in comparison.findings
        ),
        changed_files=tuple(
            ReportedFile(cell=each.cell, operators=each.change) for each in comparison.changed_files
        ),
        outcomes=tuple(ReportedOutcome.from_fields(each) for each in comparison.outcomes),
    )
    return report.to_json()


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
    from exporter.report.pages.templates import RenderOptions, render

    regressions = set(comparison.regressions)
    others = [each for each in comparison.findings if each not in regressions]
    return render(
        _TEMPLATE,
        templates,
        RenderOptions(command=command),
        requirements=requirements,
        comparison=comparison,
        regressions=cluster_findings(comparison.regressions),
        improvements=cluster_findings([each for each in others if each.is_improvement]),
        warnings=cluster_findings([each for each in others if not each.is_improvement]),
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
    red = [each for each in comparison.outcomes if not each.passes]
    older = sum(bool(each.runtime) for each in comparison.outcomes if each.passes)
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
