"""Which cells there are, which of them are selected, and which exporter makes each.

In: a `Manifest` and a `Selection`. Out: a `Plan`. Pure: nothing is read or run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from exporter.core.errors import (
    ExitCode,
    ExporterError,
    Problem,
    suggest_nearest,
)
from exporter.manifest import Condition, Manifest, ModelSpec
from exporter.planning.selection import EVERYTHING, Selection
from exporter.records.record import CellId, Route

#: Below it the dynamo exporter only tries to convert down, and keeps 18 where it cannot.
FIRST_DYNAMO_OPSET = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell that the manifests promise."""

    cell: CellId
    route: Route
    skip: str = ""
    """Why the manifest leaves it out; empty where it is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every promised cell in the order of the manifests, and those that were selected."""

    cells: tuple[PlannedCell, ...]
    selected: tuple[PlannedCell, ...]

    @property
    def to_run(self) -> tuple[PlannedCell, ...]:
        """The selected cells that the manifest does not skip."""
        return tuple(cell for cell in self.selected if not cell.skip)


def make_plan(manifest: Manifest, selection: Selection = EVERYTHING) -> Plan:
    """Lays out the cells and applies the selection.

    Raises:
        ExporterError: NOTHING_SELECTED, where a pattern, tag, opset or device matches no cell (a
            typing error must not shrink a run in silence), or where together they match none.
    """
    cells = tuple(cell for spec in manifest.models for cell in _cells_of(spec))
    _refuse_idle_words(manifest, cells, selection)
    tagged = {spec.id for spec in manifest.models if _has_tag(spec, selection.tags)}
    selected = tuple(
        cell for cell in cells if cell.cell.model in tagged and _is_selected(cell.cell, selection)
    )
    if not selected:
        raise ExporterError(
            ExitCode.NOTHING_SELECTED,
            "no cell is selected: each part of the selection matches some, together they match none"
            if cells
            else "the manifests declare no model",
        )
    return Plan(cells=cells, selected=selected)


def choose_route(spec: ModelSpec, opset: int) -> Route:
    """The exporter and capture for one opset, and why."""
    spec = spec.resolve_cell(opset)
    match spec.exporter, spec.capture:
        case "dynamo", capture:
            return Route(
                exporter="dynamo",
                capture="strict" if capture == "strict" else "export",
                why="the manifest asks for dynamo" + _converted(opset),
            )
        case "torchscript", capture:
            return Route(
                exporter="torchscript",
                capture="script" if capture == "script" else "trace",
                why="the manifest asks for TorchScript",
            )
        case "auto", ("trace" | "script") as capture:
            return Route(
                exporter="torchscript",
                capture=capture,
                why=f"capture = '{capture}' is TorchScript's",
            )
        case "auto", ("export" | "strict") as capture:
            return Route(
                exporter="dynamo", capture=capture, why=f"capture = '{capture}' is dynamo's"
            )
        case _:
            return _automatic(opset)


def condition_matches(condition: Condition, cell: CellId) -> bool:
    """Whether a condition of `expect` or `skip` means this cell."""
    right_opset = condition.opsets is None or cell.opset in condition.opsets
    return right_opset and fnmatchcase(cell.device, condition.device)


def pattern_matches(pattern: str, cell: CellId) -> bool:
    """Whether a glob means this cell; segments that the pattern lacks match anything."""
    segments = pattern.split("/")
    values = (cell.model, str(cell.opset), cell.device)
    return len(segments) <= len(values) and all(
        fnmatchcase(value, segment) for segment, value in zip(segments, values, strict=False)
    )


def _converted(opset: int) -> str:
    if opset >= FIRST_DYNAMO_OPSET:
        return ""
    return f", whose opset {FIRST_DYNAMO_OPSET} the version converter takes down"


def _automatic(opset: int) -> Route:
    if opset >= FIRST_DYNAMO_OPSET:
        why = f"opset {FIRST_DYNAMO_OPSET} and up are dynamo's own"
        return Route(exporter="dynamo", capture="export", why=why)
    why = f"dynamo is written for opset {FIRST_DYNAMO_OPSET} and up"
    return Route(exporter="torchscript", capture="trace", why=why)


def _cells_of(spec: ModelSpec) -> Iterable[PlannedCell]:
    for opset in spec.opsets:
        route = choose_route(spec, opset)
        for device in spec.devices:
            cell = CellId(model=spec.id, opset=opset, device=device)
            reasons = [skip.reason for skip in spec.skip if condition_matches(skip, cell)]
            yield PlannedCell(cell=cell, route=route, skip=reasons[0] if reasons else "")


def _has_tag(spec: ModelSpec, tags: tuple[str, ...]) -> bool:
    return not tags or any(tag in spec.tags for tag in tags)


def _is_selected(cell: CellId, selection: Selection) -> bool:
    patterns = selection.patterns
    return (
        (not patterns or any(pattern_matches(pattern, cell) for pattern in patterns))
        and (not selection.opsets or cell.opset in selection.opsets)
        and (not selection.devices or cell.device in selection.devices)
    )


def _meant(pattern: str, manifest: Manifest) -> str:
    """What a pattern that matches nothing was perhaps to say, to end a message with."""
    name = pattern.partition("/")[0]
    for spec in manifest.models:
        if spec.id == name:
            opsets, devices = ", ".join(map(str, spec.opsets)), " and ".join(spec.devices)
            return f"; {name} has the opsets {opsets} on {devices}"
    return suggest_nearest(name, (spec.id for spec in manifest.models)) or (
        "; `exporter list` shows the models"
    )


def _refuse_idle_words(
    manifest: Manifest, cells: tuple[PlannedCell, ...], selection: Selection
) -> None:
    ids = tuple(cell.cell for cell in cells)
    tags = {tag for spec in manifest.models for tag in spec.tags}
    opsets = {cell.opset for cell in ids}
    devices = {cell.device for cell in ids}
    messages = [
        *(
            f"no cell matches '{pattern}'{_meant(pattern, manifest)}"
            for pattern in selection.patterns
            if not any(pattern_matches(pattern, cell) for cell in ids)
        ),
        *(
            f"no model has the tag '{tag}'{suggest_nearest(tag, tags)}"
            for tag in selection.tags
            if tag not in tags
        ),
        *(f"no model has opset {opset}" for opset in selection.opsets if opset not in opsets),
        *(
            f"no model has the device '{device}'{suggest_nearest(device, devices)}"
            for device in selection.devices
            if device not in devices
        ),
    ]
    if messages:
        raise ExporterError(
            ExitCode.NOTHING_SELECTED, [Problem(message=message) for message in messages]
        )
