"""A model's contract in words and rows, as its page shows it.

In: a `ModelSpec`. Out: a `Contract`: the settings that say something, and its inputs, outputs and
axes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.manifest import (
    Axis,
    Bound,
    Case,
    Dim,
    Fill,
    ModelSpec,
    Override,
    Tolerance,
)
from exporter.report.rows.opset_groups import fold_opsets

#: What holds where a manifest says nothing of tolerance.
MEASURED = "measured: a multiple of PyTorch's own float32 error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key of the manifest and its value."""

    name: str
    value: str
    is_literal: bool = False
    """As it stands in the manifest, not described in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One input of the graph."""

    name: str
    dtype: str
    shape: str
    at: str
    fill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    """One output of the graph."""

    name: str
    dtype: str
    shape: str
    kind: str
    tolerance: str
    """Empty where the model's own holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRow:
    """A dynamic axis and the sizes that it promises."""

    name: str
    example: str
    sizes: str
    probe: str
    """The sizes that the manifest asks to be probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the model promises."""

    settings: tuple[Setting, ...]
    inputs: tuple[InputRow, ...]
    outputs: tuple[OutputRow, ...]
    axes: tuple[AxisRow, ...]
    cases: tuple[Setting, ...]


def describe_contract(spec: ModelSpec) -> Contract:
    """Lays out the contract."""
    return Contract(
        settings=tuple(_settings(spec)),
        inputs=tuple(
            InputRow(
                name=input.name,
                dtype=f"{input.dtype}{', optional' if input.optional else ''}",
                shape=_shape(input.shape) if not input.scalar else "a number",
                at=input.at or "in order",
                fill=format_fill(input.fill) if spec.inputs_from is None else "inputs_from",
            )
            for input in spec.inputs
        ),
        outputs=tuple(
            OutputRow(
                name=output.name,
                dtype=output.dtype,
                shape=_shape(output.shape),
                kind=output.kind,
                tolerance=_tolerance(output.tolerance) if output.tolerance else "",
            )
            for output in spec.outputs
        ),
        axes=tuple(_axis(axis) for axis in spec.axes),
        cases=tuple(
            Setting(name=case.name, value=_case(case), is_literal=True) for case in spec.cases
        ),
    )


def _case(case: Case) -> str:
    values = {**case.values, **case.files, **dict.fromkeys(case.absent), **case.axes}
    made = {"inputs_from": case.inputs_from.function} if case.inputs_from else {}
    return _table({**values, **made})


def _settings(spec: ModelSpec) -> Iterable[Setting]:
    """Settings that are always worth a row, and those that are not at their default."""
    yield Setting(name="source", value=spec.source, is_literal=True)
    yield Setting(name="opsets", value=fold_opsets(spec.opsets).replace(",", ", "))
    yield Setting(name="devices", value=", ".join(spec.devices))
    yield Setting(name="tolerance", value=_tolerance(spec.tolerance))
    if spec.ir_version is not None:
        yield Setting(name="ir_version", value=f"at most {spec.ir_version}")
    literal = {
        "exporter": spec.exporter if spec.exporter != "auto" else "",
        "capture": spec.capture or "",
        "mode": spec.mode if spec.mode != "eval" else "",
        "precision": spec.precision or "",
        "seed": str(spec.seed) if spec.seed else "",
        "init": _table(spec.init),
        "constants": _table({constant.at: constant.value for constant in spec.constants}),
        "parameters": _parameters(spec),
        "containers": _table({each.at: each.type for each in spec.containers}),
        "inputs_from": spec.inputs_from.function if spec.inputs_from else "",
        "options": _table(spec.options),
    }
    for name, value in literal.items():
        if value:
            yield Setting(name=name, value=value, is_literal=True)
    for override in spec.overrides:
        yield Setting(name=f"override: {_cells(override)}", value=_overridden(override))


def _parameters(spec: ModelSpec) -> str:
    names = spec.parameters
    if names is None:
        return ""
    return names.template or ", ".join(names.names) or _table(names.patterns)


def _cells(override: Override) -> str:
    where = [] if override.opsets is None else [f"opsets {fold_opsets(override.opsets)}"]
    where += [] if override.device == "*" else [f"device {override.device}"]
    return ", ".join(where)


def _overridden(override: Override) -> str:
    """What an override says, key by key."""
    said = {
        "exporter": override.exporter or "",
        "capture": override.capture or "",
        "ir_version": "" if override.ir_version is None else f"at most {override.ir_version}",
        "options": _table(override.options),
        "tolerance": _tolerance(override.tolerance) if override.tolerance else "",
        **{f"tolerance of {name}": _tolerance(bound) for name, bound in override.outputs.items()},
    }
    return "; ".join(f"{name}: {value}" for name, value in said.items() if value)


def _shape(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"


def format_fill(fill: Fill) -> str:
    """How an input gets its values, in words."""
    match fill.kind:
        case "uniform":
            return f"uniform [{fill.low:g}, {fill.high:g}]"
        case "randint":
            return f"randint [{fill.low:g}, {fill.high:g})"
        case "bernoulli":
            return f"bernoulli {fill.probability:g}"
        case "value":
            return f"value {json.dumps(fill.value)}"
        case "file":
            return f"file {fill.file}"
        case "python":
            return f"python {fill.python}"
        case "normal" | "zeros" | "ones" | "arange":
            return fill.kind


def format_axis_sizes(axis: Axis) -> str:
    """The sizes that an axis promises: `1 and up`, `1 to 64, multiples of 8`."""
    upper = "" if axis.max is None else f" to {axis.max}"
    multiple = f", multiples of {axis.multiple_of}" if axis.multiple_of != 1 else ""
    return f"{axis.min}{upper or ' and up'}{multiple}"


def _axis(axis: Axis) -> AxisRow:
    return AxisRow(
        name=axis.name,
        example="" if axis.example is None else str(axis.example),
        sizes=format_axis_sizes(axis),
        probe=", ".join(str(size) for size in axis.probe),
    )


def _tolerance(tolerance: Tolerance) -> str:
    special = {**tolerance.by_dtype, **tolerance.by_device}
    return "; ".join(
        [_bound(tolerance), *(f"{name}: {_bound(bound)}" for name, bound in special.items())]
    )


def _bound(bound: Bound) -> str:
    said = []
    if bound.noise is not None:
        said.append(f"{bound.noise:g} times PyTorch's own float32 error")
    if bound.atol is not None:
        said.append(f"atol {bound.atol:g}")
    if bound.rtol is not None:
        said.append(f"rtol {bound.rtol:g}")
    if not said:
        said.append(MEASURED)
    if bound.outside:
        said.append(f"up to {bound.outside:.3g} of the elements beyond it")
    return ", ".join(said)


def _table(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
