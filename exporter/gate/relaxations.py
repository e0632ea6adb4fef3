"""What a branch asks less of its models than the revision that it is held against.

In: the manifests of the revision and those of today. Out: `GateFinding`s of the kind `RELAXED`. Pure.

A gate whose rules the branch itself writes stops nobody. What is not provably as strict as before
counts as relaxed: another way to say a tolerance, a wider expectation, a smaller axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.gate.finding import FindingKind, GateFinding
from exporter.manifest import (
    Axis,
    Bound,
    Expectation,
    Fill,
    GatePolicy,
    Manifest,
    ModelSpec,
    select_bound,
)
from exporter.planning.plan import condition_matches
from exporter.records.record import CellId

#: What holds where the manifest says nothing of `noise`; see `tolerance` in its reference.
_NOISE = 8.0
_SEVERITY = {"ignore": 0, "warn": 1, "block": 2}
#: Of these keys of the policy, less is stricter.
_THRESHOLDS = ("error_factor", "error_floor", "file_growth", "latency_factor", "node_growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relaxed:
    """One thing that lets more pass."""

    before: str
    after: str


def find_relaxations(before: Manifest, after: Manifest) -> tuple[GateFinding, ...]:
    """What today's manifests ask less, cell by cell; the policy of `before` judges it.

    Args:
        before: The manifests of the revision.
        after: Those of today.
    """
    now = {spec.id: spec for spec in after.models}
    found: list[GateFinding] = []
    for spec in before.models:
        policy = before.project.gate.find_policy(spec.id)
        action = FindingKind.RELAXED.action(policy)
        if action == "ignore":
            continue
        new = now.get(spec.id)
        shared = (
            [] if new is None else list(_policies(policy, after.project.gate.find_policy(spec.id)))
        )
        for cell in _cells(spec):
            if new is None or not _has(new, cell):
                relaxed = [_Relaxed(before="promised", after="no longer promised")]
            else:
                relaxed = [*shared, *_of_cell(spec, new, cell), *_of_device(before, after, cell)]
            found += [
                GateFinding(
                    kind=FindingKind.RELAXED,
                    cell=cell,
                    before=each.before,
                    after=each.after,
                    message="less is asked than at the revision",
                    action=action,
                )
                for each in relaxed
            ]
    return tuple(sorted(found, key=lambda finding: finding.sort_key))


def _cells(spec: ModelSpec) -> Iterator[CellId]:
    for opset in spec.opsets:
        for device in spec.devices:
            yield CellId(model=spec.id, opset=opset, device=device)


def _has(spec: ModelSpec, cell: CellId) -> bool:
    return cell.opset in spec.opsets and cell.device in spec.devices


def _of_cell(before: ModelSpec, after: ModelSpec, cell: CellId) -> Iterator[_Relaxed]:
    old, new = (spec.resolve_cell(cell.opset, cell.device) for spec in (before, after))
    yield from _tolerances(old, new, cell.device)
    yield from _expectations(old, new, cell)
    if _is_skipped(new, cell) and not _is_skipped(old, cell):
        yield _Relaxed(before="not skipped", after="skipped")
    if old.thorough and not new.thorough:
        yield _Relaxed(before="thorough = true", after="thorough = false")
    if old.latency and not new.latency:
        yield _Relaxed(before="latency = true", after="latency = false")
    if old.ir_version is not None and (new.ir_version or 10**9) > old.ir_version:
        said = "no ir_version" if new.ir_version is None else f"ir_version = {new.ir_version}"
        yield _Relaxed(before=f"ir_version = {old.ir_version}", after=said)
    yield from _axes(old, new)
    yield from _inputs(old, new)
    if old.parameters is not None and new.parameters != old.parameters:
        said = "weights keep their names" if new.parameters is None else "other names of weights"
        yield _Relaxed(before="names of weights", after=said)


def _inputs(old: ModelSpec, new: ModelSpec) -> Iterator[_Relaxed]:
    """Other values prove another thing: of what is no longer tried nothing is known."""
    inputs = {item.name: item for item in new.inputs}
    for item in old.inputs:
        if item.name not in inputs:
            yield _Relaxed(before=f"input {item.name}", after="no such input")
        elif inputs[item.name].fill != item.fill:
            was, now = (_fill_text(each.fill) for each in (item, inputs[item.name]))
            yield _Relaxed(before=f"input {item.name}: {was}", after=f"input {item.name}: {now}")
    cases = {case.name: case for case in new.cases}
    for case in old.cases:
        if case.name not in cases:
            yield _Relaxed(before=f"case {case.name}", after="no such case")
        elif cases[case.name] != case:
            yield _Relaxed(before=f"case {case.name}", after=f"another case {case.name}")
    if old.inputs_from != new.inputs_from:
        sides = (spec.inputs_from.function if spec.inputs_from else "none" for spec in (old, new))
        said, says = (f"inputs_from: {name}" for name in sides)
        yield _Relaxed(before=said, after=says)


def _fill_text(fill: Fill) -> str:
    said = fill.model_dump(exclude_defaults=True, exclude={"kind"})
    figures = ", ".join(f"{name} = {value}" for name, value in said.items())
    return f"{fill.kind} ({figures})" if figures else fill.kind


def _is_skipped(spec: ModelSpec, cell: CellId) -> bool:
    return any(condition_matches(skip, cell) for skip in spec.skip)


def _tolerances(old: ModelSpec, new: ModelSpec, device: str) -> Iterator[_Relaxed]:
    outputs = {output.name: output for output in new.outputs}
    for output in old.outputs:
        if output.name not in outputs:
            yield _Relaxed(before=f"output {output.name}", after="no such output")
            continue
        was = select_bound(old, output, device)
        now = select_bound(new, outputs[output.name], device)
        if not _is_as_strict(now, was):
            name = f" of {output.name}" if len(old.outputs) > 1 else ""
            yield _Relaxed(
                before=f"tolerance{name}: {_bound_text(was)}",
                after=f"tolerance{name}: {_bound_text(now)}",
            )


def _is_as_strict(bound: Bound, than: Bound) -> bool:
    if bound.outside > than.outside:
        return False
    if bound.atol is None and than.atol is None:
        return (bound.noise or _NOISE) <= (than.noise or _NOISE)
    if bound.atol is None or than.atol is None:
        return False  # one is measured and one is not: neither is known to be less
    return bound.atol <= than.atol and (bound.rtol or 0.0) <= (than.rtol or 0.0)


def _bound_text(bound: Bound) -> str:
    if bound.atol is None:
        said = f"noise = {bound.noise or _NOISE:g}"
    else:
        said = f"atol = {bound.atol:g}, rtol = {bound.rtol or 0.0:g}"
    return said + (f", outside = {bound.outside:g}" if bound.outside else "")


def _expectations(old: ModelSpec, new: ModelSpec, cell: CellId) -> Iterator[_Relaxed]:
    known = [item for item in old.expect if condition_matches(item, cell)]
    for item in new.expect:
        if condition_matches(item, cell) and not any(_is_covered(item, by) for by in known):
            before = "; ".join(_expectation_text(each) for each in known)
            yield _Relaxed(before=before or "no expectation", after=_expectation_text(item))


def _is_covered(item: Expectation, by: Expectation) -> bool:
    """Whether everything that `item` foresees was foreseen by `by`."""
    return (
        by.stage in (None, item.stage)
        and by.check in (None, item.check)
        and by.match.casefold() in item.match.casefold()
        # Without a day there is no end.
        and (not by.until or (bool(item.until) and item.until <= by.until))
    )


def _expectation_text(item: Expectation) -> str:
    words = [f"at {item.stage}" if item.stage else "", f"of {item.check}" if item.check else ""]
    words += [f"with '{item.match}'" if item.match else "", f"until {item.until}"]
    said = " ".join(word for word in (words if item.until else words[:3]) if word)
    return f"expects a failure {said}".rstrip()


def _axes(old: ModelSpec, new: ModelSpec) -> Iterator[_Relaxed]:
    axes = {axis.name: axis for axis in new.axes}
    for axis in old.axes:
        now = axes.get(axis.name)
        if now is None:
            yield _Relaxed(before=f"axis {axis.name}", after="no such axis")
        elif not _is_as_wide(now, axis):
            yield _Relaxed(before=_axis_text(axis), after=_axis_text(now))


def _is_as_wide(axis: Axis, than: Axis) -> bool:
    is_open = axis.max is None or (than.max is not None and axis.max >= than.max)
    is_dense = than.multiple_of % axis.multiple_of == 0
    return is_open and is_dense and axis.min <= than.min and set(axis.probe) >= set(than.probe)


def _axis_text(axis: Axis) -> str:
    said = f"axis {axis.name} from {axis.min}" + (f" to {axis.max}" if axis.max else "")
    said += f" by {axis.multiple_of}" if axis.multiple_of > 1 else ""
    return said + (f", probe {', '.join(map(str, axis.probe))}" if axis.probe else "")


def _of_device(before: Manifest, after: Manifest, cell: CellId) -> Iterator[_Relaxed]:
    old, new = (manifest.project.find_device(cell.device) for manifest in (before, after))
    if old.strict and not new.strict:
        yield _Relaxed(before=f"{cell.device}: strict", after=f"{cell.device}: not strict")
    if (old.runtime, old.providers, old.module, old.device) != (
        new.runtime,
        new.providers,
        new.module,
        new.device,
    ):
        yield _Relaxed(before=f"device {cell.device}", after=f"another {cell.device}")


def _policies(old: GatePolicy, new: GatePolicy) -> Iterator[_Relaxed]:
    for key in GatePolicy.model_fields:
        was, now = getattr(old, key), getattr(new, key)
        looser = now > was if key in _THRESHOLDS else _SEVERITY[now] < _SEVERITY[was]
        if looser:
            yield _Relaxed(before=f"gate.{key} = {was}", after=f"gate.{key} = {now}")
