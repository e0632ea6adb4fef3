"""Results against what another revision accepts, by that revision's own rules.

In: the manifests and the baseline of the revision, and those of today. Out: `GateFinding`s. Pure.

A branch cannot relax its own gate: baseline and policy are the revision's, and what the branch's
manifests ask less is a finding. What it accepts itself counts for good news, and for the rest only
where the revision's policy `accepted_here` says so, with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from exporter.gate.accept import bare
from exporter.gate.compare import judge
from exporter.gate.finding import GateFinding
from exporter.gate.relaxations import relaxations
from exporter.manifest import Manifest
from exporter.records.baseline import Baseline, CellOutcome, outcome_of
from exporter.records.record import Record, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A project at one time."""

    manifest: Manifest
    baseline: Baseline


def judge_against(
    revision: Side, branch: Side, run: RunRecord, planned: Collection[str]
) -> tuple[GateFinding, ...]:
    """Holds the branch's results and manifests against the revision.

    Args:
        revision: What was accepted, and the rules.
        branch: What holds today.
        run: What was found.
        planned: The text of every cell that the branch's manifests promise.

    Returns:
        The findings, what blocks first.

    Raises:
        ExporterError: UNREADABLE, where the run has two records for a cell.
    """
    findings = judge(revision.baseline, run, planned, revision.manifest.project.gate)
    told = {str(finding.cell) for finding in findings}
    # A cell that is gone is missing already, where it was accepted.
    relaxed = (
        finding
        for finding in relaxations(revision.manifest, branch.manifest)
        if str(finding.cell) in planned or str(finding.cell) not in told
    )
    here = _Here(
        before=revision.baseline.by_cell(),
        own=branch.baseline.by_cell(),
        dropped=branch.baseline.dropped,
        found=run.by_cell(),
    )
    settled = (_settled(finding, here, revision.manifest) for finding in (*findings, *relaxed))
    return tuple(sorted((each for each in settled if each), key=lambda each: each.sort_key))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Here:
    before: Mapping[str, CellOutcome]
    own: Mapping[str, CellOutcome]
    dropped: Mapping[str, str]
    found: Mapping[str, Record]

    def is_accepted(self, cell: str) -> bool:
        """Whether the branch's own baseline has what was found."""
        own, found = self.own.get(cell), self.found.get(cell)
        return own is not None and found is not None and bare(own) == bare(outcome_of(found))

    def reason(self, cell: str) -> str:
        """Why the branch accepts what the revision does not; empty where it gives no reason."""
        if cell in self.dropped and cell not in self.own:
            return self.dropped[cell]
        before, own = self.before.get(cell), self.own.get(cell)
        if own is None or not self.is_accepted(cell):
            return ""
        # One that was given before speaks of something else.
        return own.reason if before is None or before.reason != own.reason else ""


def _settled(finding: GateFinding, here: _Here, manifest: Manifest) -> GateFinding | None:
    """The finding as it counts; None where the branch's baseline brings good news along."""
    cell = str(finding.cell)
    if finding.is_good_news and here.is_accepted(cell):
        return None
    reason = here.reason(cell)
    if not reason:
        return finding
    message = f"accepted here: {reason}" + (f" ({finding.message})" if finding.message else "")
    match manifest.project.gate.of(finding.cell.model).accepted_here:
        case "block":
            return replace(finding, message=message)
        case "warn":
            return replace(finding, message=message, action="warn")
        case "ignore":
            return None
