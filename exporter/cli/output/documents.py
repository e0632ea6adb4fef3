"""The documents that commands print with `--json`; `exporter schema` prints their schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import click
from pydantic import Field

from exporter.api.export_run import BuildPlan
from exporter.api.gate_run import GateResult
from exporter.core.frozen_model import FrozenModel, Items
from exporter.gate.finding import GateFinding
from exporter.manifest import Manifest
from exporter.manifest.cell_settings import Setting
from exporter.planning.plan import PlannedCell
from exporter.report.rows.failures import GateContext, find_context
from exporter.tools.doctor import Examination


class CellDecision(FrozenModel):
    """The action of an export for a cell."""

    cell: str
    action: Literal["run", "recheck", "restore", "keep", "skip", "unavailable"]
    exporter: str
    capture: str
    reason: str = Field(description="Why it runs or does not run; empty if it is up to date.")


class PlanDocument(FrozenModel):
    """The selected cells in the order of the manifests: `plan --json`."""

    format: Literal[1] = 1
    cells: Items[CellDecision]


class ListedModel(FrozenModel):
    """A model with its selected cells."""

    model: str
    entry: str = Field(description="FILE:LINE of its manifest.")
    tags: Items[str]
    problems: Items[str] = Field(description="Why the entry is invalid; its cells are then red.")
    cells: Items[str]


class ListDocument(FrozenModel):
    """The models of the project: `list --json`."""

    format: Literal[1] = 1
    models: Items[ListedModel]


class ExplainDocument(FrozenModel):
    """The settings of a cell: `explain CELL --json`."""

    format: Literal[1] = 1
    cell: str
    exporter: str
    capture: str
    reason: str = Field(description="Why this exporter is used.")
    skip: str = Field(description="Why the cell does not run, or empty.")
    problems: Items[str]
    settings: Items[Setting]


class Finding(FrozenModel):
    """A difference between the results and the baseline."""

    kind: str
    cells: Items[str]
    is_blocking: bool
    is_improvement: bool
    before: str
    after: str
    message: str
    cause: str = Field(description="The edits since the acceptance, or empty.")
    code: str = Field(description="The code of the failure, such as `E-axis-fixed`, or empty.")
    locations: Items[str] = Field(description="FILE:LINE of the entries or of the setting.")
    commands: Items[str] = Field(description="Commands that run or reproduce the first cell.")


class GateDocument(FrozenModel):
    """The verdict of the gate: `gate --json`."""

    format: Literal[1] = 1
    is_passed: bool = Field(description="False if a finding blocks, or a manifest is invalid.")
    revision: str = Field(description="The revision of `--against` with its commit, or empty.")
    problems: Items[str] = Field(description="Problems of manifests, whose models are unknown.")
    missing: dict[str, str] = Field(description="The cells without a result, with the reason.")
    findings: Items[Finding] = Field(description="The worst first.")
    accepted: Items[Finding] = Field(
        description="With `--against`: what the baseline of the branch accepts."
    )


#: The documents in the order of `JSON_COMMANDS`.
DOCUMENTS: dict[str, type[FrozenModel]] = {
    "plan": PlanDocument,
    "list": ListDocument,
    "explain": ExplainDocument,
    "gate": GateDocument,
    "doctor": Examination,
}


def print_document(document: FrozenModel) -> None:
    """Print the document to stdout, without the sanitizing of lines: JSON escapes controls."""
    click.echo(document.to_json(), nl=False)


def make_plan_document(build_plan: BuildPlan) -> PlanDocument:
    """Return the decision for each selected cell."""
    decisions = build_plan.decisions
    cells = []
    for planned in build_plan.plan.selected:
        action, reason = "keep", ""
        if planned.skip:
            action, reason = planned.skip_status.value, planned.skip
        elif decisions.is_to_run(planned):
            action = "recheck" if planned.cell in decisions.rechecks else "run"
            reason = decisions.reasons[planned.cell]
        elif hit := decisions.hits.get(planned.cell):
            action, reason = "restore", hit.reason
        values = {"cell": str(planned.cell), "action": action, "reason": reason}
        route = {"exporter": planned.route.exporter, "capture": planned.route.capture}
        cells.append(CellDecision.model_validate(values | route))
    return PlanDocument(cells=tuple(cells))


def make_list_document(manifest: Manifest, selected: Iterable[PlannedCell]) -> ListDocument:
    cells: dict[str, list[str]] = {}
    for planned in selected:
        cells.setdefault(planned.cell.model, []).append(str(planned.cell))
    specs = [manifest.find_model(model) for model in cells]
    return ListDocument(
        models=tuple(
            ListedModel(
                model=spec.id,
                entry=str(spec.location),
                tags=spec.tags,
                problems=spec.problems,
                cells=tuple(cells[spec.id]),
            )
            for spec in specs
        )
    )


def make_explain_document(
    planned: PlannedCell, problems: Iterable[str], settings: Iterable[Setting]
) -> ExplainDocument:
    return ExplainDocument.from_fields(
        planned.route,
        cell=str(planned.cell),
        skip=planned.skip,
        problems=tuple(problems),
        settings=tuple(settings),
    )


def make_gate_document(result: GateResult, context: GateContext) -> GateDocument:
    problems = tuple(str(problem) for problem in context.manifest.problems)
    missing = result.current.results.missing
    return GateDocument(
        is_passed=result.is_passed and not problems,
        revision=str(result.revision or ""),
        problems=problems,
        missing={str(cell): reason for cell, reason in missing.items()},
        findings=tuple(_describe_finding(finding, context) for finding in result.findings),
        accepted=tuple(_describe_finding(finding, context) for finding in result.accepted),
    )


def _describe_finding(finding: GateFinding, context: GateContext) -> Finding:
    facts = find_context([finding], context)
    locations = (facts.settings,) if facts.settings else facts.locations
    return Finding.from_fields(
        finding,
        cells=tuple(map(str, finding.cells)),
        cause=str(finding.cause or ""),
        code=facts.code,
        locations=locations,
        commands=tuple(filter(None, (facts.export_command, facts.repro_command))),
    )
