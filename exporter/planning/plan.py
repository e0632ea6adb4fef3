"""Determine all cells, the selected cells, and the exporter of each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from exporter.core.check_table import CHECKS
from exporter.core.errors import ExitCode, ExporterError, Problem, suggest_name, suggest_nearest
from exporter.manifest import Expectation, Manifest, ModelSpec
from exporter.manifest.syntax.releases import format_release
from exporter.manifest.syntax.values import (
    CAPTURES,
    EXPORTER_TITLES,
    FIRST_DYNAMO_OPSET,
    choose_exporter,
    find_lowest_release,
    format_opsets,
    is_in_range,
)
from exporter.planning import EVERYTHING, Selection
from exporter.records.record import CellId, Record, Route, Stage, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell of the manifests."""

    cell: CellId
    route: Route
    skip: str = ""
    """The reason why it does not run; empty if it runs."""
    skip_status: Literal[Status.SKIP, Status.UNAVAILABLE] = Status.SKIP
    """Its status if it does not run: the manifest skips it, or its runtime is too old."""
    links: tuple[str, ...] = ()
    """The models whose cells of this opset and device it needs, if it is a chain."""

    @property
    def link_cells(self) -> tuple[CellId, ...]:
        return tuple(self.cell.model_copy(update={"model": link}) for link in self.links)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All cells in the order of the manifests, and the selected cells."""

    cells: tuple[PlannedCell, ...]
    selected: tuple[PlannedCell, ...]

    @property
    def to_run(self) -> tuple[PlannedCell, ...]:
        return tuple(cell for cell in self.selected if not cell.skip)


def make_plan(manifest: Manifest, selection: Selection = EVERYTHING) -> Plan:
    """Return the plan with all cells of the manifests and the selected ones.

    Raises:
        ExporterError: NOTHING_SELECTED if one pattern, tag, opset or device matches no cell,
            because a typo must not reduce a run silently; or if no cell matches all of them.
    """
    cells = []
    for spec in manifest.models:
        for opset in spec.opsets:
            route = choose_route(spec, opset)
            for device_name in spec.devices:
                cell = CellId(model=spec.id, opset=opset, device=device_name)
                planned = _plan_cell(manifest, spec, cell, route)
                links = tuple(link.id for link in spec.chain)
                cells.append(replace(planned, links=links) if links else planned)
    _check_selection(manifest, [planned.cell for planned in cells], selection)
    tags = {spec.id: spec.tags for spec in manifest.models}
    owners = {spec.id: spec.owner for spec in manifest.models}
    selected = tuple(
        planned
        for planned in cells
        if any(pattern_matches(each, planned.cell) for each in selection.patterns or ("*",))
        and (not selection.tags or any(tag in tags[planned.cell.model] for tag in selection.tags))
        and owners[planned.cell.model] in (selection.owners or (owners[planned.cell.model],))
        and planned.cell.opset in (selection.opsets or (planned.cell.opset,))
        and planned.cell.device in (selection.devices or (planned.cell.device,))
    )
    if not selected:
        raise ExporterError(
            ExitCode.NOTHING_SELECTED,
            "no cell is selected: each part of the selection matches cells, but no cell matches "
            "all parts"
            if cells
            else "the manifests declare no model",
        )
    return Plan(cells=tuple(cells), selected=selected)


def add_chains(plan: Plan) -> Plan:
    """Return the plan in which the chains of each selected link are selected, too."""
    selected = {planned.cell for planned in plan.selected}
    selected |= {each.cell for each in plan.cells if not selected.isdisjoint(each.link_cells)}
    return replace(plan, selected=tuple(each for each in plan.cells if each.cell in selected))


def add_links(plan: Plan) -> Plan:
    """Return the plan in which the links of each selected chain are selected, too."""
    selected = {planned.cell for planned in plan.selected}
    selected |= {cell for planned in plan.selected for cell in planned.link_cells}
    return replace(plan, selected=tuple(each for each in plan.cells if each.cell in selected))


def order_links_first(planned_cells: Iterable[PlannedCell]) -> list[PlannedCell]:
    """Return the cells in their order, but those of chains after all others."""
    return sorted(planned_cells, key=lambda each: bool(each.links))


def _plan_cell(manifest: Manifest, spec: ModelSpec, cell: CellId, route: Route) -> PlannedCell:
    reasons = (item.reason for item in spec.skip if item.matches(cell.opset, cell.device))
    if reason := next(reasons, ""):
        return PlannedCell(cell=cell, route=route, skip=reason)
    if cell.device.base in manifest.project.elsewhere:
        reason = "it is measured on other machines only"
        return PlannedCell(cell=cell, route=route, skip=reason, skip_status=Status.UNAVAILABLE)
    for link in spec.chain:
        other = manifest.find_model(link.id)
        planned = _plan_cell(manifest, other, cell.model_copy(update={"model": link.id}), route)
        if planned.skip:
            reason = f"its link {link.id} does not run: {planned.skip}"
            return replace(planned, cell=cell, skip=reason)
    device = manifest.project.find_device(cell.device)
    release, last = device.pinned_release, device.last_opset
    promised = find_lowest_release(spec.consumers)
    # A finished file, and a release that the entry promises, must fail if they do not fit.
    is_promised = spec.artifact or (promised and release and promised <= release)
    if release is None or last is None or cell.opset <= last or is_promised:
        return PlannedCell(cell=cell, route=route)
    reason = f"ONNX Runtime {format_release(release)} loads opsets up to {last}"
    return PlannedCell(cell=cell, route=route, skip=reason, skip_status=Status.UNAVAILABLE)


def list_all_cells(manifest: Manifest) -> tuple[CellId, ...]:
    """Return the cells of all models. Unlike a plan it contains no route, and it may be empty."""
    return tuple(cell for spec in manifest.models for cell in list_cells(spec))


def list_cells(spec: ModelSpec) -> tuple[CellId, ...]:
    return tuple(
        CellId(model=spec.id, opset=opset, device=device_name)
        for opset in spec.opsets
        for device_name in spec.devices
    )


def choose_route(spec: ModelSpec, opset: int) -> Route:
    """Return the exporter and the capture for one opset, with the reason."""
    if spec.chain:
        links = ", ".join(link.id for link in spec.chain)
        return Route(exporter="chain", capture="none", reason=f"the manifest chains {links}")
    if spec.artifact:
        reason = f"the manifest names the file {spec.find_artifact(opset)}"
        return Route(exporter="file", capture="none", reason=reason)
    spec = spec.resolve_cell(opset)
    if spec.exporter == "transformers":
        reason = "the manifest selects the exporter of transformers"
        return Route(exporter="transformers", capture="export", reason=reason)
    exporter = choose_exporter(spec.exporter, spec.capture, opset)
    title, is_dynamo_opset = EXPORTER_TITLES[exporter], opset >= FIRST_DYNAMO_OPSET
    if spec.exporter != "auto":
        reason = f"the manifest selects {title}"
        if exporter == "dynamo" and not is_dynamo_opset:
            reason += f"; the version converter lowers opset {FIRST_DYNAMO_OPSET}"
    elif spec.capture:
        reason = f"{title} provides capture = '{spec.capture}'"
    else:
        only = "" if is_dynamo_opset else "only "
        reason = f"dynamo creates {only}opset {FIRST_DYNAMO_OPSET} and later ones"
    first, *others = CAPTURES[exporter]
    capture = next((each for each in others if each == spec.capture), first)
    return Route(exporter=exporter, capture=capture, reason=reason)


def pattern_matches(pattern: str, cell: CellId) -> bool:
    """Return True if a glob matches this cell; missing segments match anything."""
    segments = pattern.split("/")
    values = (cell.model, str(cell.opset), cell.device)
    return len(segments) <= len(values) and all(
        fnmatchcase(value, segment) for segment, value in zip(segments, values, strict=False)
    )


def _check_selection(manifest: Manifest, cells: list[CellId], selection: Selection) -> None:
    """Raise NOTHING_SELECTED with a message for each part that matches no cell."""
    models = {spec.id: spec for spec in manifest.models}
    tags = {tag for spec in manifest.models for tag in spec.tags}
    opsets = {cell.opset for cell in cells}
    devices = {cell.device for cell in cells}
    messages = []
    for pattern in selection.patterns:
        if any(pattern_matches(pattern, cell) for cell in cells):
            continue
        name = pattern.partition("/")[0]
        if spec := models.get(name):
            opset_list, device_list = ", ".join(map(str, spec.opsets)), " and ".join(spec.devices)
            hint = f"; {name} has the opsets {opset_list} on {device_list}"
        else:
            hint = suggest_nearest(name, models) or "; `exporter list` shows the models"
        messages.append(f"no cell matches '{pattern}'{hint}")
    messages += [
        f"no model has the tag '{tag}'{suggest_name(tag, tags)}"
        for tag in selection.tags
        if tag not in tags
    ]
    owners = {spec.owner for spec in manifest.models} - {""}
    messages += [
        f"no model has the owner '{owner}'{suggest_name(owner, owners)}"
        for owner in selection.owners
        if owner not in owners
    ]
    messages += [
        f"no model has opset {opset}; use one of {format_opsets(opsets)}"
        for opset in selection.opsets
        if opset not in opsets
    ]
    messages += [
        f"no model has the device '{device_name}'{suggest_name(device_name, devices)}"
        for device_name in selection.devices
        if device_name not in devices
    ]
    if messages:
        # The entry may be in a file that cannot be read.
        code = ExitCode.MANIFEST if manifest.problems else ExitCode.NOTHING_SELECTED
        problems = (*manifest.problems, *(Problem(message=message) for message in messages))
        raise ExporterError(code, problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of an export: `index` counts from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


#: Outcomes that match an expectation without a text in `match`.
_PLAIN_FAILURES = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE)
#: The part of a fingerprint that begins with the version of torch.
_TORCH = "tool.torch"
_UNPROVED = (Status.SKIP, Status.UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFailure:
    """One failure of a red cell: of a check, or of a stage without a check."""

    check: str
    """The check, or "" for a stage."""
    stage: Stage | None
    message: str
    detail: str = ""
    is_plain: bool
    """False for a crash, a timeout and a kill."""


def apply_expectations(spec: ModelSpec, record: Record) -> Record:
    """Return the record with the manifest's expectations applied."""
    torch = record.fingerprint.get(_TORCH, "")
    expected = [
        item
        for item in spec.expect
        if item.matches(record.cell.opset, record.cell.device) and is_in_range(torch, item.torch)
    ]
    if not expected or record.status in _UNPROVED:
        return record
    if record.status is Status.PASS and spec.lacks_weights:
        return record  # its failure may be one of the trained weights
    if record.status is Status.PASS:
        message = (
            f"passes, but the manifest expects {_describe(expected[0])}; remove the expectation"
        )
        return record.model_copy(update={"status": Status.XPASS, "message": message})
    failures = list_failures(record)
    foreseen = [_find_match(expected, failure) for failure in failures]
    if None in foreseen:
        unforeseen = [failure for failure in failures if not _find_match(expected, failure)]
        note = "expected " + " or ".join(_describe(item) for item in expected)
        names = ", ".join(f"'{failure.check}'" for failure in unforeseen if failure.check)
        note += f"; no expectation with `check` matches {names}" if names else ""
        return record.model_copy(update={"expectation": note})
    reasons = "; ".join(dict.fromkeys(item.reason for item in foreseen if item))
    return record.model_copy(update={"status": Status.XFAIL, "foreseen": reasons})


def list_failures(record: Record) -> tuple[CellFailure, ...]:
    """Return every failure of a red cell; each needs an expectation.

    The record may have its expectations applied. Its status is then `xfail`, even after a crash.
    """
    # A crash, a timeout or a kill has no clear cause, so an expectation must contain its text.
    is_plain = record.status in (*_PLAIN_FAILURES, Status.XFAIL)
    first = CellFailure(
        check=record.check or "",
        stage=record.stage,
        message=record.message,
        detail=record.detail,
        is_plain=is_plain,
    )
    messages = {each.check: each.message for each in record.checks}
    others = (
        CellFailure(
            check=check,
            stage=Stage(CHECKS[check].stage),
            message=messages[check],
            is_plain=is_plain,
        )
        for check in record.failed_checks
        if check != record.check
    )
    return (first, *others)


def _find_match(items: Sequence[Expectation], failure: CellFailure) -> Expectation | None:
    for item in items:
        has_kind = failure.is_plain or bool(item.match)
        has_stage = item.stage is None or item.stage == failure.stage
        has_check = failure.check in item.checks if failure.check else not item.checks
        has_text = item.match.casefold() in f"{failure.message}\n{failure.detail}".casefold()
        if has_kind and has_stage and has_check and has_text:
            return item
    return None


def _describe(item: Expectation) -> str:
    stage = f" at {item.stage}" if item.stage else ""
    check = f" of {' and '.join(item.checks)}" if item.checks else ""
    text = f" with '{item.match}'" if item.match else ""
    version = f" with torch {item.torch}" if item.torch else ""
    return f"a failure{stage}{check}{text}{version} ({item.reason})"


def assign_models(plan: Plan, shard: Shard) -> tuple[str, ...]:
    """Return the models of a shard, in the order of the plan.

    The models with most cells are assigned first, each to the shard with the fewest cells. A chain
    is in the shard of its links.
    """
    selected = dict.fromkeys(planned.cell.model for planned in plan.selected)
    groups = {model_id: {model_id} for model_id in selected}
    for planned in plan.selected:
        members = groups[planned.cell.model]
        for link in planned.links:
            if groups.get(link, members) is not members:
                members |= groups[link]
                groups |= dict.fromkeys(members, members)
    cells = Counter(min(groups[planned.cell.model]) for planned in plan.to_run)
    load = dict.fromkeys(range(1, shard.count + 1), 0)
    assigned = set()
    firsts = {min(group) for group in groups.values()}
    for model_id in sorted(firsts, key=lambda model_id: (-cells[model_id], model_id)):
        least = min(load, key=lambda index: (load[index], index))
        load[least] += max(cells[model_id], 1)
        if least == shard.index:
            assigned |= groups[model_id]
    return tuple(model_id for model_id in selected if model_id in assigned)


def select_shard(plan: Plan, shard: Shard) -> Plan:
    models = set(assign_models(plan, shard))
    selected = tuple(planned for planned in plan.selected if planned.cell.model in models)
    return replace(plan, selected=selected)
