"""Comparison of a branch with a revision, by the policy of the revision.

A branch must not be able to weaken its own gate. Baseline and policy are therefore those of the
revision, and a weaker contract is a finding. An improvement is no finding if the branch's baseline
accepts it. For other findings that depends on `accepted_here` of the revision's policy, and the
baseline must contain a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from exporter.gate.baseline_comparison import compare_results, strip_figures
from exporter.gate.contract_changes import ContractHashes, find_contract_changes
from exporter.gate.finding import FindingKind, GateFinding
from exporter.manifest import Manifest
from exporter.records.baseline import Baseline, CellOutcome, extract_outcome
from exporter.records.record import CellId, Record, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectState:
    """The manifests and the baseline of a project at one revision."""

    manifest: Manifest
    baseline: Baseline
    hashes: ContractHashes = field(default_factory=dict)
    """The hashes of the data files, by model and by path from the root."""


def compare_with_revision(
    revision: ProjectState, branch: ProjectState, run: RunRecord, promised: Collection[CellId]
) -> tuple[GateFinding, ...]:
    """Compare the results and the manifests of a branch with a revision; see `compare_results`."""
    findings = compare_results(revision.baseline, run, promised, revision.manifest.project.gate)
    reported = {finding.cell for finding in findings}
    # If a removed cell was accepted, it has the finding `missing` already.
    hashes = (revision.hashes, branch.hashes)
    relaxed = (
        finding
        for finding in (
            *find_contract_changes(revision.manifest, branch.manifest, hashes),
            *_find_unread_entries(revision, promised),
        )
        if finding.cell in promised or finding.cell not in reported
    )
    acceptance = _BranchAcceptance(
        before=revision.baseline.by_cell(),
        after=branch.baseline.by_cell(),
        dropped=branch.baseline.dropped,
        records=run.by_cell(),
    )
    judged = (
        _apply_acceptance(each, acceptance, revision.manifest) for each in (*findings, *relaxed)
    )
    return tuple(sorted((each for each in judged if each), key=lambda each: each.sort_key))


def _find_unread_entries(
    revision: ProjectState, promised: Collection[CellId]
) -> Iterator[GateFinding]:
    """Yield the cells that the revision accepted although it has no entry for them.

    Their promises at the revision are unknown. The entry may be in a submodule or behind a link.
    """
    known = {spec.id for spec in revision.manifest.models}
    for cell in revision.baseline.by_cell():
        policy = revision.manifest.project.gate.find_policy(cell.model)
        action = FindingKind.RELAXED.find_action(policy)
        if cell.model not in known and cell in promised and action != "ignore":
            yield GateFinding(
                kind=FindingKind.RELAXED,
                cell=cell,
                before="no entry at the revision",
                after="promised",
                message="its promises at the revision cannot be read; keep manifests in the "
                "repository, not in a link out of it or in a submodule that is not fetched",
                action=action,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BranchAcceptance:
    """The outcomes that the branch's own baseline accepts."""

    before: Mapping[CellId, CellOutcome]
    """The baseline of the revision."""
    after: Mapping[CellId, CellOutcome]
    """The baseline of the branch."""
    dropped: Mapping[CellId, str]
    records: Mapping[CellId, Record]

    def is_accepted(self, cell: CellId) -> bool:
        """Return whether the branch's baseline contains the current outcome."""
        accepted, record = self.after.get(cell), self.records.get(cell)
        if accepted is None or record is None:
            return False
        return strip_figures(accepted) == strip_figures(extract_outcome(record))

    def find_reason(self, cell: CellId) -> str:
        """Return why the branch accepts the cell, or "" if there is none."""
        if cell in self.dropped and cell not in self.after:
            return self.dropped[cell]
        before, after = self.before.get(cell), self.after.get(cell)
        if after is None or not self.is_accepted(cell):
            return ""
        # A reason that the revision contains too belongs to an older change.
        return after.reason if before is None or before.reason != after.reason else ""


def _apply_acceptance(
    finding: GateFinding, acceptance: _BranchAcceptance, manifest: Manifest
) -> GateFinding | None:
    """Return the finding with its final action, or None if the branch settles it."""
    if finding.is_improvement and acceptance.is_accepted(finding.cell):
        return None
    reasons = [acceptance.find_reason(cell) for cell in finding.cells]
    reason = reasons[0] if all(reasons) else ""
    if not reason:
        return finding
    message = f"accepted here: {reason}" + (f" ({finding.message})" if finding.message else "")
    match manifest.project.gate.find_policy(finding.cell.model).accepted_here:
        case "block":
            return replace(finding, message=message)
        case "warn":
            return replace(finding, message=message, action="warn")
        case "ignore":
            return None
