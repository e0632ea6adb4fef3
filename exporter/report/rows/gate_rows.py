"""Rows of the gate's verdict: one set for comment, pages, terminal, annotations and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pydantic import Field

from exporter.cache.fingerprint import extract_tool_versions
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import format_bytes, format_command, join_lines, join_names, pluralize
from exporter.gate.baseline_comparison import find_first_releases
from exporter.gate.finding import (
    ACCEPTED_HERE,
    CAUSED_KINDS,
    NOT_ACCEPTED,
    PROMISE_KINDS,
    Cause,
    GateFinding,
)
from exporter.manifest import FindingKind, Gate, GatePolicy, Manifest, Project
from exporter.manifest.resolved.policy import LIMITS
from exporter.manifest.rules.layers import FETCH_GUIDE
from exporter.manifest.syntax.releases import format_release
from exporter.manifest.syntax.values import format_opsets
from exporter.records.baseline import Baseline, CellOutcome, Figures, extract_outcome
from exporter.records.record import CellId, Record
from exporter.report.rows import failures, foreseen_failures
from exporter.report.rows.cells import (
    format_changed_tools,
    format_export_command,
    group_by_opset,
    list_initial_models,
)

_GREEN = ("pass", "xfail")
#: Labels of cells in one text.
_LISTED_LABELS = 12
#: Patterns of cells in one command.
_LISTED_PATTERNS = 6
#: Lines of a difference.
_DIFF_LINES = 60
#: Kinds of findings in the first line.
_LISTED_KINDS = 2
#: A blocking finding -> the finding about its cell that follows from it.
_CONSEQUENCES = {
    FindingKind.RELAXED: FindingKind.CONTRACT,
    FindingKind.NEWLY_RED: FindingKind.LOWEST_RAISED,
}
#: The first words of a finding about the content of a file of weights.
_WEIGHTS = ("weights_sha256: ", "weights file ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """The state of a project at the time of its gate."""

    manifest: Manifest
    promised: frozenset[CellId] = frozenset()
    records: Mapping[CellId, Record] = field(default_factory=dict)
    baseline: Baseline = field(default_factory=Baseline)
    """The accepted state that the results are compared with."""
    accepted: Mapping[CellId, CellOutcome] = field(default_factory=dict)
    """The cells of the baseline."""
    gate: Gate | None = None
    """The policy; None for that of the manifest."""
    tools: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[CellId, Cause] = field(default_factory=dict)
    """The edits since the acceptance, also of cells without a finding."""
    missing: Mapping[CellId, str] = field(default_factory=dict)
    """The cells without a result, with the reason."""
    accepted_in: str = ""
    """Commit and date of the baseline: `2a9548ebe314 of 2026-11-21`; empty if unknown."""
    revision: str = ""
    """The revision and its day; empty for the baseline of the work tree."""
    reviewers: Mapping[str, str] = field(default_factory=dict)
    """The next step for a loss with a reason, by model."""
    forgotten: Mapping[str, str] = field(default_factory=dict)
    """The files of the baseline from which the branch deleted removed cells, by model."""
    stale_pages: str = ""


class FindingRow(FrozenModel):
    """Equal differences between the results and the baseline, of one or more models."""

    kind: str
    title: str = Field(description="The kind in words: `newly red: only batch=3 works`.")
    subject: str = Field(description="Groups of cells, `net/17..18/cpu,cuda`; or a setting.")
    models: Items[str]
    owners: Items[str]
    cells: Items[str]
    is_blocking: bool
    is_improvement: bool
    before: str
    after: str = Field(description="Of the cell whose figure grew most.")
    message: str = Field(description="What is wrong, or what differs.")
    fixes: Items[str] = Field(description="Changes after which the file passes all checks.")
    shown_by: str = Field(description="The figures of the failed check, if `message` has a cause.")
    cause: str = Field(description="The edits since the acceptance, or empty.")
    code: str = Field(description="The code of the failure, such as `E-axis-fixed`, or empty.")
    edited: str = Field(description="FILE:LINE of the edit that causes it, or empty.")
    locations: Items[str] = Field(description="FILE:LINE of the entries or of the setting.")
    lines: Items[str] = Field(description="FILE:LINE in the model.")
    acceptance: str = Field(description="`last green in 2a9548ebe314 of 2026-11-21`, or empty.")
    commands: Items[str] = Field(description="Commands that run or reproduce the first cell.")
    expectations: Items[str] = Field(description="Items of `expect` that foresee the failure.")
    decision: str = Field(description="The next step, if it is a loss that blocks.")
    diff: str = Field(description="The edits that no earlier row has.")

    @property
    def change(self) -> str:
        """The values before and after, with their common key once."""
        key = self.before.partition(": ")[0]
        return f"{self.before} -> {self.after.removeprefix(f'{key}: ')}"

    @property
    def expect(self) -> str:
        """The lines of the entry that foresee the failure, as TOML."""
        return f"expect = [{', '.join(self.expectations)}]"


class ModelRow(FrozenModel):
    """A model that the branch changes or accepts."""

    model: str
    owner: str
    state: str = Field(description="`blocks`, `not accepted`, `new`, `changed` or `removed`.")
    change: str
    figures: dict[str, str] = Field(description="Before and now, of the largest change.")


class GateRows(FrozenModel):
    """The verdict of the gate: `gate --json`."""

    format: Literal[1] = 1
    verdict: str = Field(description="One line with the numbers of models and cells.")
    level: Literal["blocks", "pending", "passes"] = Field(description="`pending`: not accepted.")
    is_passed: bool = Field(description="False if a finding blocks, or a manifest is invalid.")
    revision: str = Field(description="The revision of `--against` with its commit, or empty.")
    counts: dict[str, int] = Field(description="Cells: `as before`, `changed`, `new`, `removed`.")
    problems: Items[str] = Field(description="Problems of manifests, whose models are unknown.")
    missing: dict[str, str] = Field(description="The cells without a result, with the reason.")
    findings: Items[FindingRow] = Field(description="The worst model first.")
    inherited: Items[FindingRow] = Field(description="Warnings that no edit explains.")
    accepted: Items[FindingRow] = Field(description="What the branch's own baseline accepts.")
    models: Items[ModelRow] = Field(description="The models that the branch changes.")
    packages: str = Field(description="The changed tools and the cells proved with them, or empty.")
    initial: Items[str] = Field(description="The models whose weights were drawn.")
    replaced: dict[str, str] = Field(
        description="Those with initial values in place of a missing file, which proves no numbers."
    )
    stale_pages: str = Field(description="Why the committed pages are old, or empty.")
    accept_command: str = Field(description="Accepts all that is not worse, after an export.")
    next: str = Field(description="The next step if something is worse, or empty.")


def build_gate_rows(
    findings: Sequence[GateFinding], facts: GateFacts, accepted: Sequence[GateFinding] = ()
) -> GateRows:
    """Return the verdict with all rows; `accepted` has what the baseline of the branch accepts."""
    inherited = _select_inherited(findings, facts, accepted)
    decided = {(_CONSEQUENCES.get(each.kind), each.cell) for each in findings if each.is_blocking}
    current = [
        each
        for each in findings
        if each not in inherited
        and (each.kind, each.cell) not in decided
        and not _is_listed(each, accepted)
    ]
    blocked = {cell for each in current if each.is_blocking for cell in each.cells}
    reported = {each.cell for each in current if each.message.startswith(ACCEPTED_HERE)}
    accepted = [each for each in accepted if each.cell not in reported]
    pending = [each for each in current if _is_pending(each)]
    worse = [each for each in current if each.is_blocking and not _is_pending(each)]
    problems = tuple(str(problem) for problem in facts.manifest.problems)
    counts = _count_cells([*current, *accepted], facts)
    models = [each.cell.model for each in (*current, *accepted) if each.setting is None]
    models += [cell.model for cell, cause in facts.causes.items() if cause.sources]
    changed = tuple(dict.fromkeys(models))
    level: Literal["blocks", "pending", "passes"] = "passes"
    if worse or problems:
        level = "blocks"
    elif pending:
        level = "pending"
    return GateRows(
        verdict=_format_verdict(worse, pending, len(changed), facts, counts),
        level=level,
        is_passed=not blocked and not problems,
        revision=facts.revision,
        counts=counts,
        problems=problems,
        missing={str(cell): reason for cell, reason in facts.missing.items()},
        findings=build_finding_rows(current, facts),
        inherited=build_finding_rows(inherited, facts),
        accepted=build_finding_rows(accepted, facts),
        models=tuple(_build_model_row(model_id, current, facts, accepted) for model_id in changed),
        packages=_describe_packages(facts),
        initial=tuple(list_initial_models(facts.records.values())),
        replaced=_list_replaced(facts),
        stale_pages=facts.stale_pages,
        accept_command=_format_update(pending, facts) if pending else "",
        next=_find_decision(worse, facts) if worse else "",
    )


def _is_listed(finding: GateFinding, accepted: Sequence[GateFinding]) -> bool:
    """Return whether it is a warning about another model that the branch's baseline accepts."""
    if finding.is_blocking or finding.kind is not FindingKind.REDEFINED:
        return False
    change = (finding.cell, finding.before, finding.after)
    return change in {(each.cell, each.before, each.after) for each in accepted}


def _list_replaced(facts: GateFacts) -> dict[str, str]:
    models = facts.manifest.models
    return {spec.id: spec.weights_path for spec in models if spec.lacks_weights}


#: For a comparison without a project: no owners, places, commands and decisions.
_NOTHING = GateFacts(manifest=Manifest(project=Project(root=".", devices=()), models=()))


def build_finding_rows(
    findings: Iterable[GateFinding], facts: GateFacts = _NOTHING
) -> tuple[FindingRow, ...]:
    """Return a row for equal findings: blocking ones first, those of the same models together."""
    groups = group_findings(findings)
    groups.sort(key=lambda group: (not group[0].is_blocking, _list_models(group)))
    shown: set[str] = set()
    rows = []
    for group in groups:
        edits = _list_edits(group)
        new = "\n".join(edit for edit in edits if edit not in shown)
        shown.update(edits)
        rows.append(_build_finding_row(group, facts, failures.shorten_diff(new, _DIFF_LINES)))
    return tuple(rows)


def group_findings(findings: Iterable[GateFinding]) -> list[list[GateFinding]]:
    """Group equal findings; names and numbers in messages and the figures of growth are ignored."""
    groups: dict[Hashable, list[GateFinding]] = {}
    for each in sorted(findings, key=lambda each: each.sort_key):
        is_growth = each.kind in LIMITS
        change = (each.cell.model, "") if is_growth else (each.before, each.after)
        # Runtimes report one problem with different texts.
        text = each.message.partition("the runtime fails: ")[0]
        message = failures.mask_names(text, {each.cell.model: "MODEL"})
        key = (each.kind, each.action, each.setting, change, str(each.cause or ""), message)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def describe_cells(cells: Iterable[CellId]) -> str:
    """Return cells in groups of opsets and devices: `net/17..18/cpu,cuda`."""
    devices: dict[str, list[str]] = {}
    for group in group_by_opset(cells, lambda cell: cell, lambda _: None):
        opsets = group.opset_ranges.replace(", ", ",")
        devices.setdefault(f"{group.model}/{opsets}", []).append(group.device)
    return join_names([f"{key}/{','.join(each)}" for key, each in devices.items()], _LISTED_LABELS)


def _list_models(findings: Iterable[GateFinding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.model for each in findings for cell in each.cells))


def _build_finding_row(group: Sequence[GateFinding], facts: GateFacts, diff: str) -> FindingRow:
    first = _find_worst(group)
    models, cells = _list_models(group), [cell for each in group for cell in each.cells]
    setting = str(first.setting.location) if first.setting else ""
    specs = facts.manifest.by_id
    owners = [specs[model_id].owner for model_id in models if model_id in specs]
    # A changed promise and a setting of the gate have no failure to show.
    is_failure = first.cell.model in specs and first.kind not in PROMISE_KINDS and not setting
    failure = _describe_failure(group, facts) if is_failure else _Failure()
    text, message = failure.text, first.message
    if text:
        message = message.replace(facts.records[first.cell].message, text.cause)
    return FindingRow.from_fields(
        first,
        title=_name_finding(first, facts),
        subject=setting or describe_cells(cells),
        models=models,
        owners=tuple(dict.fromkeys(filter(None, owners))),
        cells=tuple(map(str, cells)),
        after=_describe_state(group),
        message="; ".join(filter(None, (message, _describe_cost(group, facts)))),
        fixes=_select_fixes(text.fixes, group, facts) if text else (),
        shown_by=text.shown_by if text else "",
        cause=str(first.cause or ""),
        code=failure.code,
        edited=str(first.location or ""),
        locations=(setting,) if setting else failures.list_locations(cells, facts.manifest),
        lines=failure.lines,
        acceptance=failure.acceptance,
        commands=failure.commands,
        expectations=failure.expectations,
        decision=_find_decision(group, facts),
        diff=diff,
    )


def _select_fixes(
    fixes: Sequence[str], group: Sequence[GateFinding], facts: GateFacts
) -> tuple[str, ...]:
    """Return the fixes that the policy allows: another opset drops that of the cell."""
    may_drop = all(_may_accept(each, facts) for each in group)
    return tuple(each for each in fixes if may_drop or not each.startswith("opset "))


def _find_worst(group: Sequence[GateFinding]) -> GateFinding:
    return max(group, key=lambda each: each.growth)


def _list_edits(group: Sequence[GateFinding]) -> list[str]:
    """Return the differences of the sources that cause the worst finding."""
    cause = _find_worst(group).cause
    return [each.diff for each in cause.sources] if cause else []


def _describe_state(group: Sequence[GateFinding]) -> str:
    """Return the state of the worst cell: `41 MB (+41%), worst of 3`."""
    worst = _find_worst(group)
    growth = f" ({format_ratio(worst.growth)})" if worst.growth != 1 else ""
    are_different = len({each.after for each in group}) > 1
    return worst.after + growth + (f", worst of {len(group)}" if are_different else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """What a row shows of a cell that failed; the fields are those of the row."""

    text: failures.FailureText | None = None
    code: str = ""
    lines: tuple[str, ...] = ()
    acceptance: str = ""
    commands: tuple[str, ...] = ()
    expectations: tuple[str, ...] = ()


def _describe_failure(group: Sequence[GateFinding], facts: GateFacts) -> _Failure:
    first, project = _find_worst(group), facts.manifest.project
    acceptance = ""
    if facts.accepted_in and first.before != NOT_ACCEPTED:
        word = "green" if first.before.split(maxsplit=1)[0] in _GREEN else "accepted"
        acceptance = f"last {word} in {facts.accepted_in}"
    export = format_export_command(str(first.cell), project.command)
    is_unproved = first.kind in (FindingKind.MISSING, FindingKind.NEWLY_UNAVAILABLE)
    record = facts.records.get(first.cell)
    if record is None:
        return _Failure(acceptance=acceptance, commands=(export,) if is_unproved else ())
    repro = failures.format_repro_command(record, project)
    if first.cell in _list_invalid(group, facts):
        export = format_command(project.command, "check")
    return _Failure(
        text=failures.split_message(record) if record.message in first.message else None,
        code=record.failure_code,
        lines=tuple(map(join_lines, failures.find_model_lines(record))),
        acceptance=acceptance,
        commands=(repro or export,) if record.failure_code or is_unproved else (),
        expectations=_list_expectations(group, facts),
    )


def _list_expectations(group: Sequence[GateFinding], facts: GateFacts) -> tuple[str, ...]:
    """Return items of `expect` that foresee the failure on the device of the worst cell."""
    cell = _find_worst(group).cell
    same = [
        each.cell
        for each in group
        if (each.cell.model, each.cell.device) == (cell.model, cell.device)
    ]
    records = [facts.records[each] for each in same if each in facts.records]
    if not records[0].status.is_red or not all(_may_accept(each, facts) for each in group):
        return ()
    spec = facts.manifest.by_id[cell.model]
    return tuple(foreseen_failures.format_expectations(spec, records))


def _name_finding(finding: GateFinding, facts: GateFacts) -> str:
    """Return the kind in words, with the only sizes at which a red file works."""
    if finding.kind is FindingKind.REDEFINED and finding.before.startswith(_WEIGHTS):
        return "retrained"
    record = facts.records.get(finding.cell)
    # The first check that fails is `axes`, so the file is right at the size of the example.
    checks = record.checks if record and record.check == "axes" else ()
    sizes = [each.metrics["only"] for each in checks if "only" in each.metrics]
    is_shown = sizes and finding.kind not in PROMISE_KINDS
    return f"{finding.kind}: only {sizes[0]} works" if is_shown else finding.kind


def format_ratio(ratio: float) -> str:
    """Return `+41%`, or `x19` from a factor of two on."""
    return f"{ratio - 1:+.0%}" if 0.5 < ratio < 2 else f"x{ratio:.2g}"


def _describe_cost(findings: Sequence[GateFinding], facts: GateFacts) -> str:
    """Return how much of the old limit a wider tolerance uses, or what a lost promise costs."""
    model_id = findings[0].cell.model
    if findings[0].kind is FindingKind.REMOVED and model_id in facts.manifest.by_id:
        runtime = _compare_figures(model_id, facts).get("runtime", "")
        cost = f"the files load in ONNX Runtime from {runtime}; " if "→" in runtime else ""
        return f"{cost}`consumers` in an entry promises the oldest release"
    uses = []
    for each in findings:
        if each.kind is FindingKind.RELAXED and each.before.startswith("tolerance"):
            old, new = _find_figures(each.cell, facts)
            if old and new and old.error and old.largest_error and new.largest_error:
                share = old.error * new.largest_error / old.largest_error
                uses.append((share, new.largest_error))
    if not uses:
        return ""
    share, error = max(uses)
    verdict = "still holds" if share <= 1 else "does not hold"
    return f"the old limit {verdict}: the largest error {error:g} is about {share:.2%} of it"


def _find_figures(cell: CellId, facts: GateFacts) -> tuple[Figures | None, Figures | None]:
    """Return the accepted figures of a cell, and the current ones."""
    accepted, record = facts.accepted.get(cell), facts.records.get(cell)
    new = extract_outcome(record).figures if record else None
    if new and cell.model in _list_replaced(facts):  # an error of other weights
        new = new.model_copy(update={"error": None, "largest_error": None})
    return accepted.figures if accepted else None, new


def _is_pending(finding: GateFinding) -> bool:
    """Return whether the finding is no regression, and the baseline does not accept it yet."""
    if finding.is_blocking:
        return finding.is_improvement or finding.kind is FindingKind.CONTRACT
    return not finding.message.startswith(ACCEPTED_HERE)


def _find_decision(findings: Sequence[GateFinding], facts: GateFacts) -> str:
    """Return the next step for findings that block, as the policy allows it; "" for no loss."""
    losses = [each for each in findings if each.is_blocking and not _is_pending(each)]
    if facts is _NOTHING or not losses:
        return ""
    if len(_list_invalid(losses, facts)) == len(losses):
        command = format_command(facts.manifest.project.command, "check")
        return f"correct the entry: `{command}` lists its problems"
    absent = facts.manifest.missing_files
    lacking = {model_id: name for name, models in absent.items() for model_id in models}
    if all(each.cell.model in lacking and not each.setting for each in losses):
        names = dict.fromkeys(lacking[each.cell.model] for each in losses)
        return f"fetch {join_names([*names], _LISTED_KINDS)} first: see {FETCH_GUIDE}"
    if any(each.kind is FindingKind.MISSING and each.cell in facts.promised for each in losses):
        command = format_command(facts.manifest.project.command, "export")
        return f"prove the cells without a result: `{command}`"
    measured = [each for each in losses if each.kind is FindingKind.EVIDENCE]
    if len(measured) == len(losses):
        return measured[0].message
    final = [each for each in losses if not _may_accept(each, facts)]
    unexplained = [
        each
        for each in losses
        if each not in (*final, *measured) and not each.message.startswith(ACCEPTED_HERE)
    ]
    texts = []
    if final:
        texts.append(
            f"{_name_fix(final, facts)}; the policy of {facts.revision.split()[0]} lets no branch "
            "accept a loss (accepted_here blocks)"
        )
    elif unexplained:
        deleted = (facts.forgotten.get(each.cell.model) for each in unexplained)
        files = " ".join(dict.fromkeys(filter(None, deleted)))
        restore = f"`git checkout {facts.revision.split()[0]} -- {files}`, then " if files else ""
        accept = f"`{_format_update(unexplained, facts)}`"
        texts.append(f"{_name_fix(losses, facts)}, or accept it: {restore}{accept}")
    waiting = {
        cell.model
        for each in losses
        if each not in final and _needs_approval(each, facts)
        for cell in each.cells
    }
    if waiting and not final:
        steps = dict.fromkeys(
            facts.reviewers.get(model_id, "let an owner approve the commit")
            for model_id in sorted(waiting)
        )
        start = "commit it, and" if unexplained else "the loss has a reason:"
        approve = join_names([*steps], _LISTED_KINDS)
        texts.append(f"{start} {approve}; then run this check again")
    return "; ".join(texts)


def _name_fix(losses: Sequence[GateFinding], facts: GateFacts) -> str:
    """Return what makes a loss none."""
    if all(each.setting for each in losses):
        return "restore the setting"
    specs, accepted = facts.manifest.models, facts.baseline.models
    for old in (each.cell.model for each in losses if each.cell.model not in facts.manifest.by_id):
        source = accepted[old].contract.get("source") if old in accepted else None
        for spec in specs:
            if spec.source == source and spec.id not in accepted:
                return f'write `was = "{old}"` in the entry of {spec.id} if it is that model'
    kinds = {each.kind for each in losses}
    return "restore the promise" if kinds <= PROMISE_KINDS else "fix it"


def _list_invalid(findings: Iterable[GateFinding], facts: GateFacts) -> list[CellId]:
    """Return the cells whose entry is invalid, of findings without a setting.

    An entry is valid if only its file of weights is missing here.
    """
    specs, absent = facts.manifest.by_id, facts.manifest.missing_files
    valid = {model_id for models in absent.values() for model_id in models}
    cells = [each.cell for each in findings if not each.setting and each.cell.model in specs]
    return [cell for cell in cells if len(specs[cell.model].problems) > (cell.model in valid)]


def _may_accept(finding: GateFinding, facts: GateFacts) -> bool:
    """Return whether the policy lets the branch accept a loss with a reason."""
    policies = _find_policies(finding, facts)
    return not facts.revision or all(
        each.actions.get(FindingKind.ACCEPTED_HERE) != "block" for each in policies
    )


def _needs_approval(finding: GateFinding, facts: GateFacts) -> bool:
    policies = _find_policies(finding, facts)
    return bool(facts.revision) and any(each.needs_approval for each in policies)


def _find_policies(finding: GateFinding, facts: GateFacts) -> list[GatePolicy]:
    gate = facts.gate or facts.manifest.project.gate
    models = dict.fromkeys(cell.model for cell in finding.cells)
    return [gate.find_policy(model_id) for model_id in models]


def _format_update(findings: Iterable[GateFinding], facts: GateFacts) -> str:
    """Return the command that accepts the cells of findings."""
    affected = {cell for each in findings for cell in each.cells}
    others = (facts.promised | facts.accepted.keys()) - affected
    partial = {cell.model for cell in others}
    patterns = {str(each) if each.model in partial else f"{each.model}/*" for each in affected}
    # Without patterns, it accepts all cells with a finding.
    quoted = [f"'{each}'" for each in sorted(patterns)] * (len(patterns) <= _LISTED_PATTERNS)
    arguments = " ".join(("update", *quoted, '--reason "REASON"'))
    return format_command(facts.manifest.project.command, "baseline", arguments)


def _select_inherited(
    findings: Sequence[GateFinding], facts: GateFacts, accepted: Sequence[GateFinding]
) -> list[GateFinding]:
    """Return the warnings that the revision has already: no edit of the branch explains them."""
    drift = [each for each in findings if each.action == "warn" and each.kind in CAUSED_KINDS]
    edited = {each.cell.model for each in (*findings, *accepted) if each not in drift}
    edited |= {cell.model for cell in facts.causes}
    return [each for each in drift if facts.revision and each.cell.model not in edited]


def _count_cells(findings: Sequence[GateFinding], facts: GateFacts) -> dict[str, int]:
    before, promised = facts.accepted.keys(), facts.promised
    differing = {each.cell for each in findings if each.setting is None}
    shared = before & promised
    counts = {"as before": len(shared - differing), "changed": len(shared & differing)}
    counts |= {"new": len(promised - before), "removed": len(before - promised)}
    return {name: count for name, count in counts.items() if count}


def _format_verdict(
    worse: Sequence[GateFinding],
    pending: Sequence[GateFinding],
    changed: int,
    facts: GateFacts,
    counts: Mapping[str, int],
) -> str:
    models = len(_list_models(worse or pending))
    text = "May merge, but not accepted yet" if pending else "May merge"
    if worse or any(each.is_blocking for each in pending):
        text = "Blocks the merge" if worse else "Not accepted yet, which blocks the merge"
    of_changed = f"{models} of " * bool(models) + pluralize(max(changed, models), "changed model")
    names = list(dict.fromkeys(_name_finding(each, facts) for each in worse or pending))
    of_changed += f" ({join_names(names, _LISTED_KINDS)})" if names else ""
    text += f": {of_changed}" if changed or models else ""
    if facts.manifest.problems:
        text = "Blocks the merge: the models of a manifest file are unknown"
    cells = pluralize(len(facts.promised), "cell")
    replaced = len(_list_replaced(facts))
    of_models = pluralize(len(facts.manifest.models), "model")
    of_models += f", {replaced} with initial weights" if replaced else ""
    numbers = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{text} · {cells} of {of_models}: {numbers}"


def _describe_packages(facts: GateFacts) -> str:
    """Return the changed tools, the cells that were proved with them, and the errors."""
    ids = {cell.model for cell in facts.promised}
    models = {model_id: each for model_id, each in facts.baseline.models.items() if model_id in ids}
    before = Baseline(models=models).tools
    changes = format_changed_tools(before, facts.tools)
    if not changes:
        return ""
    changed = {pair for pair in facts.tools.items() if before.get(pair[0]) != pair[1]}
    proved, ratios = 0, list[float]()
    for cell, record in facts.records.items():
        proved += bool(changed & extract_tool_versions(record.fingerprint).items())
        old, new = _find_figures(cell, facts)
        if old and new and old.largest_error and new.largest_error:
            ratios.append(new.largest_error / old.largest_error)
    text = f"{changes}: {proved} of {pluralize(len(facts.promised), 'cell')} proved anew"
    return f"{text}, largest change of an error x{max(ratios):.2g}" if ratios else text


def _build_model_row(
    model_id: str,
    findings: Iterable[GateFinding],
    facts: GateFacts,
    accepted: Iterable[GateFinding],
) -> ModelRow:
    spec = facts.manifest.by_id.get(model_id)
    related = [each for each in findings if each.cell.model == model_id]
    shown = related or [each for each in accepted if each.cell.model == model_id]
    causes = (each for cell, each in facts.causes.items() if cell.model == model_id)
    edits = [str(replace(each, tools=())) for each in causes if each.sources]
    texts = [*dict.fromkeys(_name_finding(each, facts) for each in shown), *edits[:1]]
    state = "changed"
    if spec is None:
        state = "removed"
    elif not any(cell.model == model_id for cell in facts.accepted):
        weights = model_id in list_initial_models(facts.records.values())
        texts = [f"opsets {format_opsets(spec.opsets)}", *["initial weights"] * weights]
        state = "new"
    elif any(each.is_blocking and not _is_pending(each) for each in related):
        state = "blocks"
    elif any(map(_is_pending, related)):
        state = "not accepted"
    return ModelRow(
        model=model_id,
        owner=spec.owner if spec else "",
        state=state,
        change="; ".join(texts),
        figures=_compare_figures(model_id, facts),
    )


class _Change(NamedTuple):
    """A figure of a cell, before and now."""

    cell: CellId
    before: float | None
    """None if the cell was not accepted with it."""
    now: float

    @property
    def growth(self) -> float:
        return self.now / self.before if self.before and self.now else 1.0

    def format(self, show: Callable[[float], str]) -> str:
        now = show(self.now)
        if self.before is None or show(self.before) == now:
            return now
        return f"{show(self.before)} → {now}, {format_ratio(self.growth)}"


def _find_largest_change(
    model_id: str, facts: GateFacts, read: Callable[[Figures], float | None]
) -> _Change | None:
    """Return the change of a figure in the cell that changed most; None if no cell has it."""
    changes = []
    for cell in (cell for cell in facts.records if cell.model == model_id):
        old, new = _find_figures(cell, facts)
        if new and (now := read(new)) is not None:
            changes.append(_Change(cell, read(old) if old else None, now))
    return max(changes, key=lambda each: (abs(math.log(each.growth)), each.now), default=None)


def _compare_figures(model_id: str, facts: GateFacts) -> dict[str, str]:
    """Return each figure that a cell of the model has, before and now."""
    texts = {}
    if size := _find_largest_change(model_id, facts, lambda each: each.bytes):
        texts["size"] = size.format(format_bytes)
    if error := _find_largest_change(model_id, facts, lambda each: each.largest_error):
        figures = extract_outcome(facts.records[error.cell]).figures
        share = figures.error if figures else None
        of_limit = f" ({share * 100:.2g}% of the limit)" if share else ""
        texts["error"] = error.format("{:.2g}".format) + of_limit
    if latency := _find_largest_change(model_id, facts, lambda each: each.latency):
        texts["latency"] = latency.format("{:g}".format)
    if nodes := _find_largest_change(model_id, facts, lambda each: each.nodes):
        change = _compare_operators(nodes.cell, facts)
        texts["nodes"] = nodes.format("{:.0f}".format) + (f" ({change})" if change else "")
    if runtime := _compare_first_releases(model_id, facts):
        texts["runtime"] = runtime
    return texts


def _compare_operators(cell: CellId, facts: GateFacts) -> str:
    state, artifact = facts.baseline.models.get(cell.model), facts.records[cell].artifact
    old = state.operators.get(str(cell.opset)) if state else None
    return format_operator_changes(old, artifact.operators) if old and artifact else ""


def _compare_first_releases(model_id: str, facts: GateFacts) -> str:
    """Return the oldest releases of ONNX Runtime that load the files: `1.15 → 1.17`."""
    accepted = (each for cell, each in facts.accepted.items() if cell.model == model_id)
    current = (
        extract_outcome(each) for cell, each in facts.records.items() if cell.model == model_id
    )
    releases = [find_first_releases(each).get(model_id) for each in (accepted, current)]
    return " → ".join(dict.fromkeys(format_release(each) for each in releases if each))


def format_operator_changes(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    """Return `+2 Cast, -1 Identity`, or "" for equal counts."""
    counts = {name: new.get(name, 0) - old.get(name, 0) for name in sorted(old.keys() | new.keys())}
    return ", ".join(f"{count:+d} {name}" for name, count in counts.items() if count)
