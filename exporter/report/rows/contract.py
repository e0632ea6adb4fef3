"""The contract of a model as rows of its page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from exporter.manifest import Axis, Bound, Case, Dim, Fill, ModelSpec, Output, Tolerance
from exporter.manifest.syntax.values import format_opsets
from exporter.report.rows.cells import Row

#: Settings whose text is not in the notation of the manifest.
_DESCRIBED_KEYS = ("opsets", "devices", "tolerance", "ir_version")
#: The text for the default tolerance.
MEASURED = "measured: a multiple of PyTorch's own float32 error"


def describe_contract(spec: ModelSpec) -> dict[str, tuple[Row, ...]]:
    return {
        "settings": tuple(_list_settings(spec)),
        "inputs": tuple(
            {
                "name": input.name,
                "dtype": f"{input.dtype}{', optional' if input.optional else ''}",
                "shape": _format_shape(input.shape) if not input.scalar else "a number",
                "at": input.at or "in order",
                "fill": format_fill(input.fill),
            }
            for input in spec.inputs
        ),
        "outputs": tuple(
            {
                "name": output.name,
                "dtype": output.dtype,
                "shape": _format_shape(output.shape),
                "kind": output.kind,
                "tolerance": _format_output_tolerance(output),
            }
            for output in spec.outputs
        ),
        "axes": tuple(
            {
                "name": axis.name,
                "example": "" if axis.example is None else str(axis.example),
                "sizes": format_axis_sizes(axis),
                "probe": ", ".join(str(size) for size in axis.probe),
            }
            for axis in spec.axes
        ),
        "cases": tuple(
            _make_setting(case.name, _format_case(case), is_literal=True) for case in spec.cases
        ),
    }


def _make_setting(name: str, value: str, *, is_literal: bool = False) -> Row:
    """Return a key of the manifest; a literal value is in the notation of the manifest."""
    return {"name": name, "value": value, "is_literal": is_literal}


def _format_case(case: Case) -> str:
    function = {"inputs_from": case.inputs_from.function} if case.inputs_from else {}
    fills = {
        name: fill.value if fill.kind == "value" else fill.file or format_fill(fill)
        for name, fill in case.fills.items()
    }
    return _format_table({**fills, **dict.fromkeys(case.absent), **case.axes, **function})


def _list_settings(spec: ModelSpec) -> Iterable[Row]:
    """Yield the settings that every page has, then those that differ from their default."""
    names = spec.parameters
    values = {
        "source": spec.source,
        "artifact": spec.artifact,
        "opsets": format_opsets(spec.opsets),
        "devices": ", ".join(spec.devices),
        "tolerance": _format_tolerance(spec.tolerance),
        "consumers": ", ".join(spec.consumers),
        "ir_version": "" if spec.ir_version is None else f"at most {spec.ir_version}",
        "exporter": spec.exporter if spec.exporter != "auto" else "",
        "capture": spec.capture or "",
        "export_state": spec.export_state or "",
        "mode": spec.mode if spec.mode != "eval" else "",
        "precision": spec.precision or "",
        "seed": str(spec.seed) if spec.seed else "",
        "init": _format_table(spec.init),
        "constants": _format_table({constant.at: constant.value for constant in spec.constants}),
        "parameters": (names.template or ", ".join(names.names) or _format_table(names.patterns))
        if names
        else "",
        "containers": _format_table({each.at: each.type for each in spec.containers}),
        "component": _format_table(spec.component.model_dump(exclude_defaults=True))
        if spec.component
        else "",
        "metric": _format_table(spec.metric.model_dump(exclude_none=True)) if spec.metric else "",
        "passes": _format_table({each.call: each.arguments for each in spec.passes}),
        "inputs_from": spec.inputs_from.function if spec.inputs_from else "",
        "options": _format_table(spec.options),
    }
    for name, value in values.items():
        if value or name == "source":
            yield _make_setting(name, value, is_literal=name not in _DESCRIBED_KEYS)
    for override in spec.overrides:
        cells = [] if override.opsets is None else [f"opsets {format_opsets(override.opsets)}"]
        cells += [] if override.device == "*" else [f"device {override.device}"]
        values = {
            "exporter": override.exporter or "",
            "capture": override.capture or "",
            "ir_version": "" if override.ir_version is None else f"at most {override.ir_version}",
            "options": _format_table(override.options),
            "tolerance": _format_tolerance(override.tolerance) if override.tolerance else "",
        }
        for output, bound in override.outputs.items():
            values[f"tolerance of {output}"] = _format_tolerance(bound)
        text = "; ".join(f"{name}: {value}" for name, value in values.items() if value)
        yield _make_setting(f"override: {', '.join(cells)}", text)


def _format_shape(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"


def format_fill(fill: Fill) -> str:
    """Return the fill of an input as text: `uniform [0, 1]`."""
    match fill.kind:
        case "uniform":
            return f"uniform [{fill.low:g}, {fill.high:g}]"
        case "randint":
            return f"randint [{fill.low:g}, {fill.axis or f'{fill.high:g}'})"
        case "bernoulli":
            return f"bernoulli {fill.probability:g}"
        case "mask" | "padding":
            return f"{fill.kind} {fill.side}"
        case "lengths_of":
            return f"lengths of {fill.axis}"
        case "value":
            return f"value {json.dumps(fill.value)}"
        case "file" | "python" | "image":
            mode = f", {fill.mode}" if fill.mode else ""
            return f"{fill.kind} {fill.file or fill.python}{mode}"
        case "normal" | "zeros" | "ones" | "arange" | "function":
            return "inputs_from" if fill.kind == "function" else fill.kind


def format_axis_sizes(axis: Axis) -> str:
    """Return the promised sizes of an axis: `1 and up`, `past + seq, 1 to 64`."""
    upper = "" if axis.max is None else f" to {axis.max}"
    multiple = f", multiples of {axis.multiple_of}" if axis.multiple_of != 1 else ""
    rule = f"{axis.rule.formula}, " if axis.rule else ""
    return f"{rule}{axis.min}{upper or ' and up'}{multiple}"


def _format_tolerance(tolerance: Tolerance) -> str:
    special = {**tolerance.by_dtype, **tolerance.by_device}
    texts = [_format_bound(tolerance)]
    texts += [f"{name}: {_format_bound(bound)}" for name, bound in special.items()]
    return "; ".join(texts)


def _format_output_tolerance(output: Output) -> str:
    """Return the tolerance of an output and the mask of its compared values, if it has them."""
    texts = [_format_tolerance(output.tolerance)] if output.tolerance else []
    if output.compare:
        fields = output.compare.model_dump(exclude_defaults=True)
        texts.append(f"compared by {_format_table(fields)}")
    texts += [f"compared by {output.masked_by}"] if output.masked_by else []
    return "; ".join(texts)


def _format_bound(bound: Bound) -> str:
    values = {
        "{:g} times PyTorch's own float32 error": bound.noise,
        "{:g} steps of the output's scale in PyTorch": bound.steps,
        "atol {:g}": bound.atol,
        "rtol {:g}": bound.rtol,
    }
    texts = [text.format(value) for text, value in values.items() if value is not None]
    texts = texts or [MEASURED]
    if bound.outside:
        texts.append(f"up to {bound.outside:.3g} of the elements outside")
    return ", ".join(texts)


def _format_table(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
