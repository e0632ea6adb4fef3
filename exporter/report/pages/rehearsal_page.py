"""The report of a rehearsal: markdown for people, and JSON for other programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.core.text import DEFAULT_COMMAND, pluralize
from exporter.gate.upgrade_comparison import CellChange, FileChange, UpgradeComparison
from exporter.manifest.resolved.model import ExporterName
from exporter.report.formats import clean_message
from exporter.report.rows.cells import OpsetGroup, group_by_opset, mask_numbers
from exporter.report.rows.failure_clusters import cluster_findings

_TEMPLATE = "rehearsal.md"


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
