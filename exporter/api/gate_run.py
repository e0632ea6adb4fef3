"""Read the results of the last export, gate and accept them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from exporter.cache.states import read_tool_versions
from exporter.core.errors import ExitCode, ExporterError, Location, Problem, suggest_nearest
from exporter.core.git import diff_files, find_last_change
from exporter.gate import baseline_comparison
from exporter.gate.accepted_contract import describe_states
from exporter.gate.approvals import Reviews
from exporter.gate.evidence import find_evidence_findings
from exporter.gate.finding import (
    CAUSED_KINDS,
    Cause,
    GateFinding,
    find_cause,
    read_change,
)
from exporter.manifest import FindingKind, Manifest, find_renames
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import Results, drop_changed_files, filter_valid_results
from exporter.planning.plan import list_cells, make_plan
from exporter.records.baseline import (
    FOLDER,
    AcceptedModel,
    Baseline,
    extract_outcomes,
    read_baseline,
    rename_models,
    write_baseline,
)
from exporter.records.record import CellId, RunRecord, read_run
from exporter.report import reports_folder
from exporter.report.reports_folder import ReportPaths, describe_uncommitted
from exporter.report.rows.gate_rows import GateFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The current results and the baseline before they are accepted."""

    manifest: Manifest
    current: Results
    run: RunRecord
    """The records of the cells in the manifests."""
    planned: frozenset[CellId]
    before: Baseline

    @property
    def findings(self) -> tuple[GateFinding, ...]:
        return baseline_comparison.compare_results(
            self.before, self.run, self.planned, self.manifest.project.gate, self.states
        )

    @property
    def states(self) -> dict[str, AcceptedModel]:
        return describe_states(self.manifest, self.run, self.before)


def prepare_acceptance(manifest: Manifest) -> Acceptance:
    """Read the results and the baseline.

    Raises:
        ExporterError: UNREADABLE if the results or the baseline cannot be read.
    """
    current = read_results(manifest)
    path = ReportPaths(manifest.project).baseline
    before = read_baseline(path) if path.exists() else Baseline()
    require_former_ids(manifest, before.models.keys())
    before = rename_models(before, find_renames(manifest, before.models.keys()))
    planned, run = _spread_invalid_entries(manifest, current.run, before)
    # Cells that left the manifests also leave the baseline.
    records = tuple(record for record in run.records if record.cell in planned)
    return Acceptance(
        manifest=manifest,
        current=current,
        run=run.model_copy(update={"records": records}),
        planned=planned,
        before=before,
    )


def _spread_invalid_entries(
    manifest: Manifest, run: RunRecord, accepted: Baseline
) -> tuple[frozenset[CellId], RunRecord]:
    """Return the promised cells, and the run with a record for each accepted one of these entries.

    The opsets and devices of an invalid entry can be unknown, so it promises the accepted cells,
    and each of them has the result of the entry.
    """
    by_model: dict[str, list[CellId]] = {}
    for cell in accepted.by_cell():
        by_model.setdefault(cell.model, []).append(cell)
    records, planned = run.by_cell(), set[CellId]()
    for spec in manifest.models:
        cells = list_cells(spec)
        known = by_model.get(spec.id, []) if spec.problems else []
        planned.update(known or cells)
        result = next((records[cell] for cell in cells if cell in records), None)
        if known and result:
            records = {cell: each for cell, each in records.items() if cell not in cells}
            records |= {cell: result.model_copy(update={"cell": cell}) for cell in known}
    return frozenset(planned), run.model_copy(update={"records": tuple(records.values())})


def require_former_ids(manifest: Manifest, known: Collection[str]) -> None:
    """Raise an error if a new model was one that no accepted state has.

    `known`: The IDs of the accepted states.

    Raises:
        ExporterError: MANIFEST, with file and line.
    """
    problems = []
    for spec in manifest.models:
        if spec.was and spec.id not in known and not any(each in known for each in spec.was):
            names = ", ".join(f"'{each}'" for each in spec.was)
            hint = suggest_nearest(spec.was[0], sorted(known - manifest.by_id.keys()))
            message = f"models.{spec.id}.was: the baseline has no model {names}{hint or _NEW_MODEL}"
            location = Location(file=spec.manifest, line=spec.line)
            problems.append(Problem(message=message, location=location))
    if problems:
        raise ExporterError(ExitCode.MANIFEST, problems)


_NEW_MODEL = "; remove `was` if the model is a new one"


def accept(
    acceptance: Acceptance,
    cells: Collection[CellId] | Mapping[CellId, str] | None = None,
    reason: str = "",
) -> None:
    """Write the results into the baseline, and write the reports.

    `cells` may have a reason for each; it is None for all of them.

    Raises:
        ExporterError: ENVIRONMENT if a file cannot be written.
        KeyError: A cell is in neither the manifests, the results nor the baseline.
    """
    manifest = acceptance.manifest
    before = acceptance.before
    states = acceptance.states
    outcomes = extract_outcomes(acceptance.run)
    if cells is None:
        accepted = baseline_comparison.accept_all(before, outcomes, states, manifest.project.gate)
    else:
        known = {*outcomes, *before.by_cell(), *before.dropped, *acceptance.planned}
        if unknown := [cell for cell in cells if cell not in known]:
            raise KeyError(
                f"{unknown[0]}: is in neither the manifests, the results nor the baseline"
            )
        reasons = cells if isinstance(cells, Mapping) else dict.fromkeys(cells, reason)
        accepted = baseline_comparison.accept_some(before, outcomes, reasons, states)
    write_baseline(ReportPaths(manifest.project).baseline, accepted)
    reports_folder.write_reports(manifest, acceptance.current.run)


_MISSING = "missing"


def read_results(manifest: Manifest) -> Results:
    """Read the results and drop the stale ones, and those with a changed file.

    Raises:
        ExporterError: UNREADABLE if the results do not exist or are damaged.
    """
    build = BuildFolder.from_project(manifest.project)
    run = read_run(build.results)
    results = filter_valid_results(run, manifest, make_plan(manifest))
    other_tools = find_other_tools(run.tools, read_tool_versions())
    return replace(drop_changed_files(results, build.path), other_tools=other_tools)


def find_other_tools(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """List the tools with another version than the results.

    A tool that is not installed is ignored, because the gate needs no PyTorch.

    Returns:
        The list, or "" if all versions are equal.
    """
    return ", ".join(
        f"{name} {before[name]} (here {version})"
        for name, version in now.items()
        if _MISSING not in (before.get(name, _MISSING), version) and before[name] != version
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The findings of the gate, and the state that the results were compared with."""

    current: Results
    findings: tuple[GateFinding, ...]
    """The blocking ones first."""
    context: GateFacts
    """The accepted state, and the facts that explain the findings."""
    accepted: tuple[GateFinding, ...] = ()
    """With a revision: the differences between its baseline and that of the branch."""

    @property
    def is_passed(self) -> bool:
        """Whether no finding blocks the merge. A problem of a manifest file is no finding."""
        return not any(each.is_blocking for each in self.findings)


def gate(
    manifest: Manifest,
    environment: Mapping[str, str],
    against: str | None = None,
    reviews: Reviews | None = None,
) -> GateResult:
    """Compare the current results with the accepted ones.

    With `against`, baseline and policy are those of a revision of git; `reviews` are those of the
    pull request.

    Raises:
        ExporterError: RED if there is no baseline. UNREADABLE if the results, the baseline or the
            manifests of the revision cannot be read. MANIFEST and ENVIRONMENT as `check_out`.
    """
    current = read_results(manifest)
    root, path = Path(manifest.project.root), ReportPaths(manifest.project).baseline
    present = read_baseline(path) if against is None or path.exists() else Baseline()
    known = present.models.keys()
    present = rename_models(present, find_renames(manifest, known))
    planned, run = _spread_invalid_entries(manifest, current.run, present)
    findings: Iterable[GateFinding]
    accepted: tuple[GateFinding, ...] = ()
    if against is None:
        policy, baseline = manifest, present
        require_former_ids(manifest, known)
        revision = ""
        stale = ""
        reviewers, forgotten = dict[str, str](), dict[str, str]()
        states = describe_states(manifest, run, baseline)
        findings = baseline_comparison.compare_results(
            baseline, run, planned, manifest.project.gate, states
        )
    else:
        from exporter.api.revision_comparison import compare  # 7 ms, with git's commands

        compared = compare(manifest, run, planned, environment, against, reviews)
        policy, baseline = compared.state.manifest, compared.state.baseline
        require_former_ids(manifest, baseline.models.keys() | known)
        findings, accepted = compared.findings, compared.accepted
        reviewers, forgotten = compared.reviewers, compared.forgotten
        revision = f"{compared.name} of {compared.commit.day}"
        stale = describe_uncommitted(manifest, run, environment)
    findings = (*findings, *find_evidence_findings(manifest, policy, run, datetime.now(UTC)))
    findings = _judge_initial_weights(findings, manifest)
    findings = sorted(findings, key=lambda each: each.sort_key)
    if against is None:
        commit = find_last_change([path], environment) if findings else None
        base = commit.id if commit else ""
    else:
        base = compared.commit.id
        accepted_at = root / policy.project.reports / FOLDER
        commit = find_last_change([accepted_at], environment, base) or compared.commit
    # Without a commit, only the tools are compared.
    names = {each.file for record in run.records for each in record.sources}
    names |= {spec.manifest for spec in manifest.models}
    diffs = diff_files(root, base, names, environment) if base else {}
    facts = GateFacts(
        manifest=manifest,
        promised=planned,
        records=run.by_cell(),
        baseline=baseline,
        accepted=baseline.by_cell(),
        gate=policy.project.gate,
        tools=run.tools,
        causes=_find_causes(manifest, run, baseline, diffs),
        missing=current.missing,
        accepted_in=str(commit or ""),
        revision=revision,
        reviewers=reviewers,
        forgotten=forgotten,
        stale_pages=stale,
    )
    return GateResult(
        current=current,
        findings=tuple(_add_cause(each, facts, diffs) for each in findings),
        context=facts,
        accepted=accepted,
    )


def _judge_initial_weights(
    findings: Iterable[GateFinding], manifest: Manifest
) -> Iterator[GateFinding]:
    """Yield the findings, without those that initial weights in place of a file explain.

    Errors depend on the weights, so they are not compared. A cell that is better than with the
    trained weights needs no acceptance, and cannot have one. Initial values of the links of a chain
    need not be those of the whole, so it is unavailable.
    """
    initial = {spec.id for spec in manifest.models if spec.lacks_weights}
    chains = {
        spec.id
        for spec in manifest.models
        if not initial.isdisjoint((spec.id, *(link.id for link in spec.chain))) and spec.chain
    }
    for each in findings:
        is_harmless = each.kind in (FindingKind.FIXED, FindingKind.BETTER)
        is_harmless |= each.cell.model in chains and each.kind is FindingKind.NEWLY_UNAVAILABLE
        if each.cell.model not in initial | chains or each.setting:
            yield each
        elif is_harmless and each.is_blocking:
            texts = filter(None, ("initial weights", each.message))
            yield replace(each, action="warn", message="; ".join(texts))
        elif each.kind is not FindingKind.ERROR_GROWN:
            yield each


def _find_causes(
    manifest: Manifest, run: RunRecord, baseline: Baseline, diffs: Mapping[str, str]
) -> dict[CellId, Cause]:
    """Return the edits since the acceptance of each cell that has any."""
    causes = {}
    for each in run.records:
        known = baseline.models.get(each.cell.model)
        old_tools = known.tools if known else run.tools
        if cause := find_cause(each, manifest, old_tools, run.tools, diffs):
            causes[each.cell] = cause
    return causes


def _add_cause(finding: GateFinding, facts: GateFacts, diffs: Mapping[str, str]) -> GateFinding:
    """Return the finding with the edits that explain it, or with the edited line of its entry."""
    if finding.kind in CAUSED_KINDS:
        return replace(finding, cause=facts.causes.get(finding.cell))
    specs = facts.manifest.by_id
    spec = specs.get(finding.cell.model)
    if finding.setting or spec is None or spec.manifest not in diffs:
        return finding
    lines = [each.line for each in specs.values() if each.manifest == spec.manifest]
    end = min((line for line in lines if line > spec.line), default=math.inf)
    edits = read_change(spec.manifest, diffs[spec.manifest]).lines
    inside = [max(e.first, spec.line) for e in edits if e.last >= spec.line and e.first < end]
    line = next(iter((*inside, *(each.first for each in edits))), None)
    return replace(finding, edited=Location(file=spec.manifest, line=line))
