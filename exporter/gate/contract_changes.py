"""Changes of the contract: promises of a revision that the current manifests do not keep.

A branch must not be able to weaken its own gate. So each changed key is a finding, unless
`_DIRECTIONS` or the set of promised sizes shows that the new value is as strict.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from exporter.core.errors import Location
from exporter.core.text import pluralize
from exporter.core.toml_table import SETTINGS_FILE
from exporter.gate.finding import GateFinding, PolicySetting
from exporter.manifest import (
    Action,
    Axis,
    Bound,
    Device,
    Dim,
    FindingKind,
    Gate,
    GatePolicy,
    Input,
    Manifest,
    ModelSpec,
    Output,
    Project,
    select_bound,
)
from exporter.manifest.resolved.call import SizeRule
from exporter.manifest.resolved.model import DEFAULT_NOISE_FACTOR
from exporter.manifest.resolved.policy import LIMITS
from exporter.manifest.syntax.table import read_keys, select_keys
from exporter.manifest.syntax.values import find_lowest_release
from exporter.planning.plan import list_cells
from exporter.records.baseline import AcceptedModel, Baseline, list_operators
from exporter.records.record import CellId, RunRecord

#: The keys of an entry by the comparison that they need; see `Key.gate`.
DEFINING_KEYS, _HARMLESS_KEYS, _RESOLVED_KEYS = (
    select_keys(ModelSpec, gate=gate) for gate in ("definition", "nothing", "cell")
)
#: Keys of an entry that the stored contract does not have. The cells show opsets and devices. A
#: measurement promises nothing; with a revision, a removed one is a finding.
_UNSTORED_KEYS = _HARMLESS_KEYS | {"opsets", "devices", "measure"}
#: Lists of an entry whose items have names -> the name of an item.
_NAMED_PARTS = {"inputs": "input", "outputs": "output", "axes": "axis", "cases": "case"}
#: The settings of a project that its entries refer to.
_OF_DEVICES = {"devices", "toolchains"}
#: Before the name of a device: its key concerns the cells of this device only.
_DEVICE = "device "
#: Parts that describe a promise, or choose the route of a file.
_EXCLUDED_PARTS: dict[str, Any] = {
    "expect": {"__all__": {"reason"}},
    "skip": {"__all__": {"reason"}},
    "overrides": {"__all__": {"exporter", "capture"}},
}
_SEVERITY: Mapping[Action, int] = {"ignore": 0, "warn": 1, "block": 2}
_MESSAGES = {
    FindingKind.RELAXED: "promises less than the accepted state",
    FindingKind.CONTRACT: "differs from the accepted state; `exporter baseline` accepts it",
    FindingKind.REDEFINED: "defines another model, other weights or another export",
}
#: Characters of a value in a message.
_LENGTH = 120
#: Digits of a hash in a message.
_DIGITS = 12

#: The hashes of data files and functions, by model and by the kind and the subject of a finding.
ContractHashes: TypeAlias = Mapping[str, Mapping[tuple[FindingKind, str], str]]


def find_contract_changes(
    before: Manifest, after: Manifest, hashes: tuple[ContractHashes, ContractHashes] = ({}, {})
) -> tuple[GateFinding, ...]:
    """Compare the entries of two manifests, cell by cell; the policy of `before` applies.

    Hashes that one side lacks are not compared: large files are often outside of git.
    """
    current = {spec.id: spec for spec in after.models}
    findings = list(_find_weaker_settings(before, after))
    devices = [each.project.model_dump_json(include=_OF_DEVICES) for each in (before, after)]
    for old in before.models:
        new = current.get(old.id)
        digests = [each.get(old.id) for each in hashes]
        entries = [each and each.model_dump_json(exclude={"line"}) for each in (old, new)]
        if all(first == second for first, second in (devices, digests, entries)):
            continue
        policy = before.project.gate.find_policy(old.id)
        promised = list_cells(new) if new else ()
        # Cells of one device to which the same conditions apply have the same promises.
        compared: dict[tuple[object, ...], list[tuple[FindingKind, _Change]]] = {}
        for cell in list_cells(old):
            changes = [(FindingKind.RELAXED, ("promised", "no longer promised"))]
            if new is not None and cell in promised:
                conditions = (
                    each for of in (old, new) for each in (*of.overrides, *of.expect, *of.skip)
                )
                group = (
                    cell.device,
                    *(each.matches(cell.opset, cell.device) for each in conditions),
                )
                if group not in compared:
                    # The promises of an invalid entry are unknown, and all its cells are red.
                    sides = ((before, old, hashes[0]), (after, new, hashes[1]))
                    compared[group] = [] if new.problems else list(_compare_cell(*sides, cell))
                changes = compared[group]
            findings += [_make_finding(kind, cell, change, policy) for kind, change in changes]
    reported = (finding for finding in findings if finding.action != "ignore")
    return tuple(sorted(reported, key=lambda finding: finding.sort_key))


#: A changed key before and after.
_Change: TypeAlias = tuple[str, str]
_Side: TypeAlias = tuple[Manifest, ModelSpec, ContractHashes]


def _make_finding(
    kind: FindingKind, cell: CellId, change: _Change, policy: GatePolicy
) -> GateFinding:
    return GateFinding(
        kind=kind,
        cell=cell,
        before=change[0],
        after=change[1],
        message=_MESSAGES[kind],
        action=policy.find_action(kind),
    )


def _compare_cell(old: _Side, new: _Side, cell: CellId) -> Iterator[tuple[FindingKind, _Change]]:
    specs = [spec.resolve_cell(cell.opset, cell.device) for _, spec, _ in (old, new)]
    before, after = (
        _list_promises(side[0], spec, cell) for side, spec in zip((old, new), specs, strict=True)
    )
    for (key, subject), value in before.items():
        name = f"{key} {subject}".strip()
        other = after.get((key, subject))
        is_as_strict = _DIRECTIONS.get(key)
        if (key, subject) in after and (
            _are_same(value, other) or (is_as_strict and is_as_strict(value, other))
        ):
            continue
        is_dropped = key in ("weights", "weights_sha256") and not other
        is_other = key in DEFINING_KEYS and not is_dropped
        kind = FindingKind.REDEFINED if is_other else FindingKind.RELAXED
        yield kind, _format_change(name, value, other)
    for change in _find_lost_sizes(*specs):
        yield FindingKind.RELAXED, change
    digests = [side[2].get(cell.model, {}) for side in (old, new)]
    for kind, name in sorted(digests[0].keys() & digests[1].keys()):
        first, second = (each[kind, name] for each in digests)
        if first != second:
            yield kind, _format_change(name, first[:_DIGITS], second[:_DIGITS])


def _list_promises(
    manifest: Manifest, spec: ModelSpec, cell: CellId
) -> dict[tuple[str, str], object]:
    """Return everything that the entry promises for the cell, by the key and its subject."""
    device, opset = manifest.project.find_device(cell.device), cell.opset
    promises: dict[tuple[str, str], object] = {
        (key, ""): getattr(spec, key)
        for key in sorted(ModelSpec.model_fields.keys() - _HARMLESS_KEYS - _RESOLVED_KEYS)
    }
    promises |= {
        ("source", "folder"): posixpath.dirname(spec.manifest) or ".",
        ("expect", ""): tuple(each for each in spec.expect if each.matches(opset, cell.device)),
        ("skipped", ""): any(each.matches(opset, cell.device) for each in spec.skip),
        ("consumers", ""): find_lowest_release(spec.consumers),
        ("order of inputs", ""): tuple(item.name for item in spec.inputs),
        ("order of outputs", ""): tuple(item.name for item in spec.outputs),
        ("strict", f"of device {cell.device}"): device.strict,
        ("device", cell.device): _describe_device(manifest.project, device),
    }
    for item in (*spec.inputs, *spec.outputs):
        # `_find_lost_sizes` compares the shapes of inputs.
        keys = type(item).model_fields.keys() - ({"shape"} if isinstance(item, Input) else {"name"})
        promises |= {(key, f"of {item.name}"): getattr(item, key) for key in sorted(keys)}
    for output in spec.outputs:
        promises["tolerance", f"of {output.name}"] = select_bound(spec, output, cell.device)
    dims = {dim for item in spec.inputs for dim in item.shape}
    promises |= {("axis", axis.name): axis for axis in spec.axes if axis.name not in dims}
    return promises | {("case", case.name): case for case in spec.cases}


def _describe_device(project: Project, device: Device) -> dict[str, Any]:
    """Return the settings of a device, without its name and the state of this machine."""
    environment, others = device.environment, device.job_environment
    excluded = {"name", "strict", "environment", "job_environment"}
    settings: dict[str, Any] = {
        **device.model_dump(mode="json", exclude_defaults=True, exclude=excluded),
        "provider_library": device.provider_library.removeprefix(f"{project.root}/"),
        "requirements": [*environment.requirements] if environment else [],
        "python": environment.python if environment else "",
        "toolchain": [*others.requirements] if others else [],  # as in stored baselines
    }
    return {key: value for key, value in settings.items() if value}


def describe_states(
    manifest: Manifest, run: RunRecord, baseline: Baseline
) -> dict[str, AcceptedModel]:
    """Return the current state of each model, as the baseline stores it.

    Without a file that has weights, their values are unknown and count as the accepted ones.
    """
    initial = {record.cell.model for record in run.records if record.initial_weights}
    built = {each.cell.model for each in run.records if each.artifact and each.artifact.parameters}
    known = {model: each.weights for model, each in baseline.models.items()}
    known |= {model: "initial" if model in initial else "loaded" for model in built}
    operators = list_operators(run)
    return {
        spec.id: AcceptedModel(
            tools=dict(sorted(run.tools.items())),
            weights=known.get(spec.id, ""),
            contract=_describe_contract(manifest.project, spec),
            operators=operators.get(spec.id, {}),
            cells=(),
        )
        for spec in manifest.models
    }


def _describe_contract(project: Project, spec: ModelSpec) -> dict[str, Any]:
    """Return the promises by their keys, without defaults; nothing for an invalid entry.

    A key of a later version changes nothing while it has its default.
    """
    if spec.problems:
        return {}
    excluded = dict.fromkeys(_UNSTORED_KEYS, True) | _EXCLUDED_PARTS
    contract: dict[str, Any] = {}
    for key, value in spec.model_dump(mode="json", exclude_defaults=True, exclude=excluded).items():
        if (part := _NAMED_PARTS.get(key)) is None:
            contract[key] = value
            continue
        if key in ("inputs", "outputs") and len(value) > 1:
            contract[f"order of {key}"] = [item["name"] for item in value]
        contract |= {f"{part} {item.pop('name')}": item for item in value}
    for name in spec.devices:
        device = project.find_device(name)
        settings: dict[str, Any] = {"strict": True} if device.strict else {}
        settings |= _describe_device(project, device)
        if settings.get("provider_library", "").startswith("/"):
            del settings["provider_library"]  # a path of this machine
        contract[f"{_DEVICE}{name}"] = settings
    return contract


def find_state_changes(
    before: Baseline, after: Mapping[str, AcceptedModel], cells: Collection[CellId], gate: Gate
) -> Iterator[GateFinding]:
    """Yield each difference between the states of a model, for each of its accepted cells.

    Kinds that the policy ignores are not included.
    """
    for model, old in before.models.items():
        policy = gate.find_policy(model)
        changes = list(_compare_states(old, after[model])) if model in after else []
        changes = [each for each in changes if policy.find_action(each[0]) != "ignore"]
        for cell in (each.cell for each in old.cells if each.cell in cells):
            for kind, key, change in changes:
                if not key.startswith(_DEVICE) or key == f"{_DEVICE}{cell.device}":
                    yield _make_finding(kind, cell, change, policy)


def _compare_states(
    old: AcceptedModel, new: AcceptedModel
) -> Iterator[tuple[FindingKind, str, _Change]]:
    if old.weights and new.weights and old.weights != new.weights:
        kind = FindingKind.RELAXED if new.weights == "initial" else FindingKind.CONTRACT
        yield kind, "", _format_change("values of the weights", old.weights, new.weights)
    is_known = old.contract and new.contract
    if not is_known or _serialize(old.contract) == _serialize(new.contract):
        return
    keys = old.contract.keys() | new.contract.keys()
    for key in sorted(keys - _UNSTORED_KEYS - {"folder"}):  # older contracts have some of them
        first, second = (each.contract.get(key) for each in (old, new))
        if _serialize(first) == _serialize(second):  # NaN is equal to itself
            continue
        first, second = _keep_differences(first, second)
        yield FindingKind.CONTRACT, key, _format_change(key, first, second)


def _keep_differences(old: Any, new: Any) -> tuple[Any, Any]:
    """Return the keys, or the items of lists, that the other value lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = {**old, **new}
        changed = [key for key in keys if _serialize(old.get(key)) != _serialize(new.get(key))]
        return {key: old.get(key) for key in changed}, {key: new.get(key) for key in changed}
    if isinstance(old, list) and isinstance(new, list) and any(item not in new for item in old):
        return [a for a in old if a not in new], [b for b in new if b not in old]
    return old, new


def _are_same(value: object, other: object) -> bool:
    if value is other or type(value) is type(other) is str:
        return value == other
    # 1, 1.0 and true are equal in Python.
    return value == other and _serialize(value) == _serialize(other)


def _serialize(value: object) -> str:
    return json.dumps(to_jsonable_python(value), sort_keys=True)


def _is_output_as_strict(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> bool:
    """Return whether a size replaces each changed name."""
    pairs = zip(old, new, strict=False)
    return len(old) == len(new) and all(
        a == b or (isinstance(a, str) and isinstance(b, int)) for a, b in pairs
    )


#: Keys and effects of which another value can be as strict -> whether the new value is.
_DIRECTIONS: Mapping[str, Callable[[Any, Any], object]] = {
    **{
        name: key.is_as_strict
        for table in (ModelSpec, Output)
        for name, key in read_keys(table).items()
        if key.is_as_strict
    },
    # `_find_lost_sizes` compares the limits of a free axis and of a derived one.
    "axis": lambda old, new: old.is_free or (new.rule and old.rule in (None, new.rule)),
    "shape": _is_output_as_strict,
    "skipped": lambda old, _: old,
    "strict": lambda _, new: new,
}


class _Sizes(NamedTuple):
    """A set of sizes: the multiples of `step` between two sizes, or fewer."""

    low: float
    high: float
    step: int


def _find_lost_sizes(old: ModelSpec, new: ModelSpec) -> Iterator[_Change]:
    """Yield each input and axis that no longer takes every size that the old entry promises."""
    old_axes, new_axes = ({axis.name: axis for axis in spec.axes} for spec in (old, new))
    shapes = {item.name: item.shape for item in new.inputs}
    # The dimensions of the old inputs that each axis of the new ones replaces.
    sources: dict[str, set[Dim]] = {}
    for item in old.inputs:
        shape = shapes.get(item.name, ())
        pairs = list(zip(item.shape, shape, strict=False))
        if len(item.shape) != len(shape) or any(
            a != b and not (isinstance(a, int) and b in new_axes) for a, b in pairs
        ):
            yield _format_change(f"shape of {item.name}", item.shape, shape)
            continue
        for a, b in pairs:
            if isinstance(b, str):
                sources.setdefault(b, set()).add(a)

    def compute_sizes(dim: Dim) -> _Sizes:
        replaced = sources.get(dim, {dim}) if isinstance(dim, str) else {dim}
        return _compute_sizes(next(iter(replaced)), old_axes)

    for name in {**sources, **new_axes}:
        axis, known = new_axes.get(name), old_axes.get(name)
        dims = sources.get(name) or {*((name,) if known else ())}
        if axis and name not in sources and not (axis.rule or axis.is_free):
            continue  # only outputs have it
        sizes = compute_sizes(name) if len(dims) == 1 else None
        if axis and axis.rule and (known is None or axis.rule != known.rule or dims != {name}):
            computed = _apply_rule(axis.rule, [compute_sizes(dim) for dim in axis.rule.operands])
            is_fixed = computed.low == computed.high and sizes and sizes[:2] == computed[:2]
            sizes = computed if name not in sources or is_fixed else None
        if (
            axis is None
            or sizes is None
            or sizes.low < axis.min
            or sizes.high > (axis.max or math.inf)
            or sizes.step % axis.multiple_of
        ):
            before = ", ".join(f"{dim}" for dim in dims - {name}) or known
            yield _format_change(f"axis {name}", before, axis)


def _compute_sizes(dim: Dim, axes: Mapping[str, Axis]) -> _Sizes:
    """Return the promised sizes of a dimension, as far as limits can describe them."""
    if isinstance(dim, int):
        return _Sizes(dim, dim, dim)
    if (axis := axes.get(dim)) is None:
        return _Sizes(-math.inf, math.inf, 1)
    sizes = _Sizes(axis.smallest, axis.max or math.inf, axis.multiple_of)
    if axis.rule is None:
        return sizes
    computed = _apply_rule(axis.rule, [_compute_sizes(each, axes) for each in axis.rule.operands])
    low, high = max(sizes.low, computed.low), min(sizes.high, computed.high)
    return _Sizes(low, high, math.lcm(sizes.step, computed.step))


def _apply_rule(rule: SizeRule, operands: list[_Sizes]) -> _Sizes:
    """Return limits of the sizes that a rule computes."""
    first, *others = operands
    step = math.gcd(*(each.step for each in operands))
    match rule.kind:
        case "sum":
            low, high = (sum(each[end] for each in operands) for end in (0, 1))
        case "difference":
            low = first.low - sum(each.high for each in others)
            high = first.high - sum(each.low for each in others)
        case "product":
            low, high = (math.prod(each[end] for each in operands) for end in (0, 1))
            step = math.prod(each.step for each in operands)
        case "window":
            name = str(rule.operands[0])
            low, high = (
                rule.compute({name: int(size)}) if math.isfinite(size) else size
                for size in first[:2]
            )
            step = int(low) if low == high else 1
    return _Sizes(low, high, step)


def _format_change(name: str, old: object, new: object) -> _Change:
    return f"{name}: {_format_value(old)}", f"{name}: {_format_value(new)}"


def _format_value(value: object) -> str:
    match value:
        case Bound():
            keys = {"atol", "rtol", "outside", "noise", "steps"}
            items = value.model_dump(exclude_defaults=True, include=keys).items()
            text = ", ".join(f"{key} = {each:g}" for key, each in items)
            text = text or f"noise = {DEFAULT_NOISE_FACTOR:g} by default"
        case BaseModel():
            fields = value.model_dump(exclude_defaults=True, exclude={"name", "reason"})
            text = _format_value(fields) if fields else "default"
        case Mapping():
            known = {key: each for key, each in sorted(value.items()) if each not in (None, "", ())}
            text = ", ".join(f"{key} = {_format_value(each)}" for key, each in known.items())
            text = text or "default"
        case bool():
            text = str(value).lower()
        case tuple() | list():
            text = ", ".join(_format_value(each) for each in value)
        case _:
            text = str(value or "") if not isinstance(value, int | float) else str(value)
    return f"{text[:_LENGTH]}..." if len(text) > _LENGTH else text or "none"


def _find_weaker_settings(before: Manifest, after: Manifest) -> Iterator[GateFinding]:
    """Yield one finding for each weaker setting of the gate's policy and its line.

    A cell that is no longer promised has a finding of its own.
    """
    if before.project.gate == after.project.gate:
        return
    current = {spec.id: spec for spec in after.models}
    edits: dict[tuple[_Change, Location], list[tuple[Action, CellId]]] = {}
    for old in before.models:
        new = current.get(old.id)
        if new is None or new.problems:
            continue
        policy, new_policy = (each.project.gate.find_policy(old.id) for each in (before, after))
        action = policy.find_action(FindingKind.RELAXED)
        promised = {*list_cells(new)}
        changes: list[tuple[str, _Change]] = []
        for kind in FindingKind:
            first, second = (each.find_action(kind) for each in (policy, new_policy))
            if _SEVERITY[second] < _SEVERITY[first]:
                name = f'["{kind.key}"]'
                changes.append((kind.key, (f"gate.{first} = {name}", f"gate.{second} = {name}")))
        for kind in LIMITS:
            old_limit, limit = (each.find_limit(kind) for each in (policy, new_policy))
            if limit > old_limit:
                key = f"limits.{kind.key}"
                changes.append((key, (f"gate.{key} = {old_limit:g}", f"gate.{key} = {limit:g}")))
        for key, change in changes:
            line = after.project.gate.find_line(old.id, key)
            edits.setdefault((change, Location(file=SETTINGS_FILE, line=line)), []).extend(
                (action, cell) for cell in list_cells(old) if cell in promised
            )
    for (change, location), affected in edits.items():
        cells = tuple(cell for _, cell in affected)
        if cells:
            models = len({cell.model for cell in cells})
            yield GateFinding(
                kind=FindingKind.RELAXED,
                cell=cells[0],
                before=change[0],
                after=change[1],
                message=f"weaker than at the revision, for {pluralize(models, 'model')}",
                action=max((action for action, _ in affected), key=_SEVERITY.__getitem__),
                setting=PolicySetting(location=location, cells=cells),
            )
