"""Split off; to be described."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from exporter.gate import GROWTH, GateFinding
from exporter.report.rows.opset_ranges import OpsetGroup, fold, likeness


def fold_findings(findings: Sequence[GateFinding]) -> tuple[OpsetGroup[GateFinding], ...]:
    """Findings equal but for their opset; messages and growth may differ in their numbers."""
    return fold(
        findings,
        lambda finding: finding.cell,
        lambda finding: (
            *change_of(finding),
            likeness(finding.message),
        ),
    )


def change_of(finding: GateFinding) -> tuple[Hashable, ...]:
    """What is said of the change; of figures, that they grew: by how much differs by opset."""
    change = (finding.before, finding.after)
    if finding.kind in GROWTH:
        change = (finding.cell.model, "")
    return (finding.kind, finding.action, *change)
