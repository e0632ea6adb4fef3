"""Promises of a revision that the current manifests do not keep.

A branch must not be able to weaken its own gate. So each changed key is a finding, unless
`_DIRECTIONS` or the set of promised sizes shows that the new value is as strict.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from exporter.core.errors import Location
from exporter.core.text import pluralize
from exporter.core.toml_table import SETTINGS_FILE
from exporter.gate.accepted_contract import (
    DEFINING_KEYS,
    DIGITS,
    HARMLESS_KEYS,
    RESOLVED_KEYS,
    WEIGHTS_FILE,
    Change,
    describe_device,
    format_change,
    keep_differences,
    make_finding,
    serialize,
)
from exporter.gate.finding import GateFinding, PolicySetting
from exporter.manifest import (
    Action,
    Axis,
    Dim,
    FindingKind,
    Gate,
    Input,
    Manifest,
    ModelSpec,
    Output,
    select_bound,
)
from exporter.manifest.resolved.call import SizeRule
from exporter.manifest.resolved.policy import LIMITS
from exporter.manifest.syntax.table import read_keys
from exporter.manifest.syntax.values import find_lowest_release
from exporter.planning.plan import list_cells
from exporter.records.record import CellId

#: The hashes of data files and functions, by model and by the kind and the subject of a finding.
ContractHashes: TypeAlias = Mapping[str, Mapping[tuple[FindingKind, str], str]]

_NO_HASHES: ContractHashes = {}
#: The settings of a project that its entries refer to.
OF_DEVICES = {"devices", "environments", "job_environments"}
_SEVERITY: Mapping[Action, int] = {"ignore": 0, "warn": 1, "block": 2}


def find_contract_changes(
    before: Manifest,
    after: Manifest,
    old_hashes: ContractHashes = _NO_HASHES,
    new_hashes: ContractHashes = _NO_HASHES,
    former_gate: Gate | None = None,
) -> tuple[GateFinding, ...]:
    """Compare the entries of two manifests, cell by cell; the policy of `before` applies.

    `former_gate` is the policy that the branch changed, if it is another one. Hashes that one side
    lacks are not compared: large files are often outside of git.
    """
    current = {spec.id: spec for spec in after.models}
    findings = list(_find_weaker_settings(before, after, former_gate or before.project.gate))
    old_devices = before.project.model_dump_json(include=OF_DEVICES)
    new_devices = after.project.model_dump_json(include=OF_DEVICES)
    for old in before.models:
        new = current.get(old.id)
        if (
            old_devices == new_devices
            and old_hashes.get(old.id) == new_hashes.get(old.id)
            and new is not None
            and old.model_dump_json(exclude={"line"}) == new.model_dump_json(exclude={"line"})
        ):
            continue
        if new is not None and new.problems:
            continue  # its promises are unknown, and all its cells are red
        policy = before.project.gate.find_policy(old.id)
        promised = list_cells(new) if new else ()
        # Cells of one device to which the same conditions apply have the same promises.
        compared: dict[tuple[object, ...], list[tuple[FindingKind, Change]]] = {}
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
                    sides = (
                        _Side(before, old, old_hashes.get(old.id, {})),
                        _Side(after, new, new_hashes.get(old.id, {})),
                    )
                    compared[group] = list(_compare_cell(*sides, cell))
                changes = compared[group]
            findings += [make_finding(kind, cell, change, policy) for kind, change in changes]
    reported = (finding for finding in findings if finding.action != "ignore")
    return tuple(sorted(reported, key=lambda finding: finding.sort_key))


class _Side(NamedTuple):
    """An entry in one of the two manifests that are compared."""

    manifest: Manifest
    spec: ModelSpec
    hashes: Mapping[tuple[FindingKind, str], str]
    """Those of its data files and functions."""


def _compare_cell(old: _Side, new: _Side, cell: CellId) -> Iterator[tuple[FindingKind, Change]]:
    old_spec = old.spec.resolve_cell(cell.opset, cell.device)
    new_spec = new.spec.resolve_cell(cell.opset, cell.device)
    before = _list_promises(old.manifest, old_spec, cell)
    after = _list_promises(new.manifest, new_spec, cell)
    for (key, subject), value in before.items():
        name = f"{key} {subject}".strip()
        other = after.get((key, subject))
        if (key, subject) not in after and value in (None, "", ()):
            continue  # of an input or output that is no longer there, and it promised nothing
        is_as_strict = _DIRECTIONS.get(key)
        if (key, subject) in after and (
            _are_same(value, other) or (is_as_strict and is_as_strict(value, other))
        ):
            continue
        is_dropped = key in ("weights", "weights_sha256") and not other
        is_other = key in DEFINING_KEYS and not is_dropped
        kind = FindingKind.REDEFINED if is_other else FindingKind.RELAXED
        yield kind, format_change(name, *keep_differences(value, other))
    for change in _find_lost_sizes(old_spec, new_spec):
        yield FindingKind.RELAXED, change
    for kind, name in sorted(old.hashes):
        first = old.hashes[kind, name]
        second = new.hashes.get((kind, name), first)
        if new.spec.lacks_weights and name.startswith(WEIGHTS_FILE):
            yield FindingKind.RELAXED, format_change(name, "in git", "missing")
        elif first != second:
            yield kind, format_change(name, first[:DIGITS], second[:DIGITS])


def _list_promises(
    manifest: Manifest, spec: ModelSpec, cell: CellId
) -> dict[tuple[str, str], object]:
    """Return everything that the entry promises for the cell, by the key and its subject."""
    device, opset = manifest.project.find_device(cell.device), cell.opset
    promises: dict[tuple[str, str], object] = {
        (key, ""): getattr(spec, key)
        for key in sorted(ModelSpec.model_fields.keys() - HARMLESS_KEYS - RESOLVED_KEYS)
    }
    promises |= {
        ("source", "folder"): posixpath.dirname(spec.manifest) or ".",
        ("expect", ""): tuple(each for each in spec.expect if each.matches(opset, cell.device)),
        ("skipped", ""): any(each.matches(opset, cell.device) for each in spec.skip),
        ("consumers", ""): find_lowest_release(spec.consumers),
        ("order of inputs", ""): tuple(item.name for item in spec.inputs),
        ("order of outputs", ""): tuple(item.name for item in spec.outputs),
        ("strict", f"of device {cell.device}"): device.strict,
        ("device", cell.device): describe_device(manifest.project, device),
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


def _are_same(value: object, other: object) -> bool:
    if value is other or type(value) is type(other) is str:
        return value == other
    # 1, 1.0 and true are equal in Python.
    return value == other and serialize(value) == serialize(other)


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
        for table in (ModelSpec, Input, Output)
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


def _find_lost_sizes(old: ModelSpec, new: ModelSpec) -> Iterator[Change]:
    """Yield each input and axis that no longer takes every size that the old entry promises."""
    old_axes = {axis.name: axis for axis in old.axes}
    new_axes = {axis.name: axis for axis in new.axes}
    shapes = {item.name: item.shape for item in new.inputs}
    # The dimensions of the old inputs that each axis of the new ones replaces.
    replaced: dict[str, set[Dim]] = {}
    for item in old.inputs:
        shape = shapes.get(item.name, ())
        pairs = list(zip(item.shape, shape, strict=False))
        if len(item.shape) != len(shape) or any(
            old_dim != new_dim and not (isinstance(old_dim, int) and new_dim in new_axes)
            for old_dim, new_dim in pairs
        ):
            yield format_change(f"shape of {item.name}", item.shape, shape)
            continue
        for old_dim, new_dim in pairs:
            if isinstance(new_dim, str):
                replaced.setdefault(new_dim, set()).add(old_dim)
    for name in {**replaced, **new_axes}:
        axis = new_axes.get(name)
        known = old_axes.get(name)
        dims = replaced.get(name, set())
        if not dims and known:
            dims = {name}
        if axis and name not in replaced and not (axis.rule or axis.is_free):
            continue  # only outputs have it
        sizes = None
        if len(dims) == 1:
            sizes = _compute_old_sizes(name, replaced, old_axes)
        if axis and axis.rule and (known is None or axis.rule != known.rule or dims != {name}):
            operands = [_compute_old_sizes(dim, replaced, old_axes) for dim in axis.rule.operands]
            computed = _apply_rule(axis.rule, operands)
            is_fixed = computed.low == computed.high and sizes and sizes[:2] == computed[:2]
            sizes = computed if name not in replaced or is_fixed else None
        if (
            axis is None
            or sizes is None
            or sizes.low < axis.min
            or sizes.high > (axis.max or math.inf)
            or sizes.step % axis.multiple_of
        ):
            before = ", ".join(f"{dim}" for dim in dims - {name}) or known
            yield format_change(f"axis {name}", before, axis)


def _compute_old_sizes(
    dim: Dim, replaced: Mapping[str, set[Dim]], axes: Mapping[str, Axis]
) -> _Sizes:
    """Return the sizes that the old entry promises for a dimension of the new one."""
    old_dims = replaced.get(dim, {dim}) if isinstance(dim, str) else {dim}
    return _compute_sizes(next(iter(old_dims)), axes)


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


def _find_weaker_settings(
    before: Manifest, after: Manifest, former_gate: Gate
) -> Iterator[GateFinding]:
    """Yield one finding for each setting of the gate's policy that is weaker than `former_gate`.

    A cell that is no longer promised has a finding of its own.
    """
    if former_gate == after.project.gate:
        return
    current = {spec.id: spec for spec in after.models}
    edits: dict[tuple[Change, Location], list[tuple[Action, CellId]]] = {}
    for old in before.models:
        new = current.get(old.id)
        if new is None or new.problems:
            continue
        policy = former_gate.find_policy(old.id)
        new_policy = after.project.gate.find_policy(old.id)
        action = before.project.gate.find_policy(old.id).find_action(FindingKind.RELAXED)
        promised = {*list_cells(new)}
        changes: list[tuple[str, Change]] = []
        for kind in FindingKind:
            first, second = (each.find_action(kind) for each in (policy, new_policy))
            if _SEVERITY[second] < _SEVERITY[first]:
                name = f'["{kind.key}"]'
                changes.append((kind.key, (f"gate.{first} = {name}", f"gate.{second} = {name}")))
        accepted_here = FindingKind.ACCEPTED_HERE
        if new_policy.needs_approval and policy.actions.get(accepted_here) == "block":
            values = (f'gate.block = ["{accepted_here.key}"]', "a loss passes with an approval")
            changes.append((accepted_here.key, values))
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
