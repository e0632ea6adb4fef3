"""Resolve the values of inputs: fills, cases, masks, lengths and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Axis, Case, Dim, Fill, InputsFrom
from exporter.manifest.resolved.model import Comparator
from exporter.manifest.rules.axes import check_size, find_size_problem
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import NamedShape, resolve_dtype
from exporter.manifest.schema.tables import (
    AxisTable,
    CaseTable,
    FillTable,
    InputTable,
)
from exporter.manifest.syntax.fields import FLOATS, MAX_SIZE, OMITTED
from exporter.manifest.syntax.values import KeyPath, format_key, format_value, join_words, quote

#: The smallest and the largest value of each integer dtype.
_INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
}
_COMPLEX = ("complex64", "complex128")
#: Floats represent integers exactly up to this value, and `Fill` stores bounds as floats.
_MAX_EXACT = 2**53

#: The dtypes of each fill; other fills suit every dtype.
_DTYPES = {
    "normal": (*FLOATS, *_COMPLEX),
    "arange": (*FLOATS, *_INTS),
    "uniform": FLOATS,
    "randint": (*FLOATS, *_INTS),
    "bernoulli": (*FLOATS, *_INTS, "bool"),
    "mask": (*FLOATS, *_INTS, "bool"),
    "padding": (*FLOATS, *_INTS, "bool"),
    "lengths_of": tuple(_INTS),
    "image": (*FLOATS, *(name for name in _INTS if name != "int8")),
}


def resolve_fill(
    model: EffectiveSettings,
    path: KeyPath,
    fill: str | FillTable,
    dtype: str,
) -> Fill:
    """Return the fill at `path`, and report it if it does not suit the dtype."""
    items: dict[str, Any] = {fill: None} if isinstance(fill, str) else fill.list_explicit()
    mode = items.pop("mode", "RGB")
    ((kind, value),) = items.items()
    if dtype not in _DTYPES.get(kind, (dtype,)):
        example = 'dtype = "int64"' if kind == "lengths_of" else 'fill = "normal"'
        if dtype == "bool" and kind != "lengths_of":
            example = "fill = { bernoulli = 0.5 }"
        elif dtype in _INTS:
            example = "fill = { randint = [0, 10] }"
        message = f"'{kind}' does not suit {dtype}; write, for example, {example}"
        model.add_problem(path, message)
    elif problem := _find_problem(model, kind, value, dtype):
        model.add_problem((*path, kind), problem)
    match kind:
        case "uniform" | "randint":
            axis = next((each for each in value if isinstance(each, str)), "")
            low, high = (0.0 if isinstance(each, str) else float(each) for each in value)
            return Fill(kind=kind, low=low, high=high, axis=axis)
        case "bernoulli":
            return Fill(kind=kind, probability=float(value))
        case "mask" | "padding":
            return Fill(kind=kind, side=value)
        case "lengths_of":
            return Fill(kind=kind, axis=value)
        case "value":
            return Fill(kind=kind, value=value)
        case "file" | "image":
            file = model.check_data_file((*path, kind), value)
            return Fill(kind=kind, file=file, mode=mode if kind == "image" else "")
        case "python":
            function = model.check_function((*path, kind), value)
            return Fill(kind=kind, python=function)
        case _:
            return Fill.model_validate({"kind": kind})


def find_value_problem(value: object, dtype: str) -> str:
    """Return why a value or one of its items does not suit the dtype, or "" if it does."""
    for item in _flatten(value):
        if dtype == "bool" and not isinstance(item, bool):
            return f"a bool input takes true and false, not {format_value(item)}"
        if dtype != "bool" and isinstance(item, bool):
            return f"an input of {dtype} takes numbers, not {format_value(item)}"
        if dtype in _INTS:
            low, high = _INTS[dtype]
            if not isinstance(item, int):
                return f"an input of {dtype} takes integers, not {format_value(item)}"
            if not low <= item <= high:
                limits = f"from {low} to {high}"
                return f"an input of {dtype} takes integers {limits}, not {format_value(item)}"
    return ""


def _find_problem(model: EffectiveSettings, kind: str, value: Any, dtype: str) -> str:
    if kind == "value":
        return find_value_problem(value, dtype)
    if kind not in ("uniform", "randint"):
        return ""
    low, high = value
    if isinstance(low, str):
        return f"the lower end is {quote(low)}; write an integer, and the axis as the upper end"
    if isinstance(high, str):
        tables = model.settings.axes if model.has_valid("axes") else {}
        axis = tables.get(high, AxisTable())
        if axis.min <= low:
            size = f"the axis {quote(high)} may be {axis.min}"
            return f"{size}, and no integer from {low} is below; write axes.{high}.min = {low + 1}"
        high = axis.max or MAX_SIZE
    if low >= high:
        ends = f"{format_value(high)}, must be above the lower end, {format_value(low)}"
        return f"the upper end, {ends}"
    if max(abs(low), abs(high)) > _MAX_EXACT:
        return f"bounds above {_MAX_EXACT} are not exact; use smaller ones"
    return find_value_problem([low, high - 1], dtype) if kind == "randint" else ""


def _flatten(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


_FIX = "use an input with axes of the output, each once, and the size 1 elsewhere"


def check_masks(model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    """Report masks, lengths and pictures that do not fit the shapes of the inputs and outputs."""
    inputs = {shape.name: shape for shape in shapes.values() if shape.is_input}
    _check_fills(model, shapes)
    for index, table in enumerate(model.settings.outputs):
        name, path = table.masked_by, ("outputs", index, "masked_by")
        if name is None or ("outputs", index) not in shapes:
            continue
        if name not in inputs:
            model.add_problem(path, f"no input has this name{suggest_name(name, inputs)}")
        elif table.kind == "sequence":
            message = "a list of tensors has no common positions; remove `masked_by` or `kind`"
            model.add_problem(path, message)
        elif problem := _find_mask_problem(inputs[name].dims, shapes["outputs", index].dims):
            mask = f"the mask {quote(name)} {format_dims(inputs[name].dims)}"
            message = f"{mask} does not fit the output: {problem}; {_FIX}"
            model.add_problem(path, message)


def resolve_comparators(
    model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]
) -> list[Comparator | None]:
    """Return the comparator of each output, and report those that do not fit it."""
    comparators: list[Comparator | None] = []
    for index, table in enumerate(model.settings.outputs):
        compare, path = table.compare, ("outputs", index, "compare")
        if compare is None:
            comparators.append(None)
            continue
        comparator = (
            Comparator(call=model.check_function(path, compare))
            if isinstance(compare, str)
            else Comparator.from_fields(compare)
        )
        comparators.append(comparator)
        if problem := _find_comparator_problem(model, index, comparator, shapes):
            model.add_problem(path, problem)
    return comparators


def _find_comparator_problem(
    model: EffectiveSettings,
    index: int,
    comparator: Comparator,
    shapes: Mapping[KeyPath, NamedShape],
) -> str:
    """Return why a comparator does not fit its output, or ""."""
    table = model.settings.outputs[index]
    dtype = resolve_dtype(model.settings, table)
    is_exact = dtype not in FLOATS and not (comparator.rows or comparator.call)
    if table.kind == "sequence" or dtype in _COMPLEX or is_exact:
        kind = "a list of tensors" if table.kind == "sequence" else dtype
        return f"does not suit {kind}; remove it"
    if table.tolerance and not comparator.rows:
        return "replaces the tolerance; remove `tolerance` or `compare`"
    if table.masked_by and (comparator.rows or comparator.top_k or comparator.call):
        return "needs all values; remove `masked_by`, or use `cosine` or `sqnr`"
    if not comparator.rows:
        return ""
    dims = shapes["outputs", index].dims if ("outputs", index) in shapes else ()
    names = {each.name: number for number, each in enumerate(model.settings.outputs)}
    leading = dims[: max(len(dims) - 1, 1)]
    if not dims:
        return "needs rows, and the output is a scalar; remove it"
    for name in comparator.along:
        if name not in names or name == table.name:
            return f"no other output has the name {quote(name)}{suggest_name(name, names)}"
        other, text = shapes["outputs", names[name]].dims, ""
        if other[: len(leading)] != leading:
            text = f"{quote(name)} {format_dims(other)} lacks the rows {format_dims(leading)}"
        elif model.settings.outputs[names[name]].compare:
            text = f"{quote(name)} has a comparator of its own; remove one of the two"
        if text:
            return text
    return ""


def _check_fills(model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    dims = (dim for shape in shapes.values() if shape.is_input for dim in shape.dims)
    axes = [dim for dim in dims if isinstance(dim, str)]
    for path, name, fill in _list_fill_tables(model):
        ends = {"lengths_of": fill.lengths_of, "randint": (fill.randint or (0, 0))[-1]}
        for key, axis in ends.items():
            if isinstance(axis, str) and axis not in axes:
                message = f"no input has this axis{suggest_name(axis, axes)}"
                model.add_problem((*path, key), message)
        if fill.image:
            shape = next(shape for shape in shapes.values() if shape.name == name)
            if problem := _find_image_problem(shape.dims, 3 if fill.mode in (None, "RGB") else 1):
                model.add_problem((*path, "image"), problem)
        for key in ("mask", "padding"):
            if getattr(fill, key) and () in [s.dims for s in shapes.values() if s.name == name]:
                message = "a scalar has no rows; add the axis of the sequence to `shape`"
                model.add_problem((*path, key), message)


def _find_image_problem(dims: tuple[Dim, ...], channels: int) -> str:
    """Return why a picture does not fit an input, or ""."""
    form = '["batch", 3, "height", "width"]' if channels == 3 else '["batch", 1, "height", "width"]'
    if len(dims) < (3 if channels == 3 else 2):
        return f"a picture does not fit the shape {format_dims(dims)}; use, for example, {form}"
    if len(dims) > 2 and dims[-3] != channels:
        modes = 'mode "L" or "Y" has one channel' if channels == 1 else 'mode "RGB" has 3 channels'
        return f"{modes}, not {dims[-3]}; use, for example, the shape {form}, or another mode"
    return ""


def _list_fill_tables(model: EffectiveSettings) -> Iterator[tuple[KeyPath, str, FillTable]]:
    """Yield the path, the input and the table of each fill of the inputs and the cases."""
    for index, table in enumerate(model.settings.inputs):
        if isinstance(table.fill, FillTable):
            yield ("inputs", index, "fill"), table.name, table.fill
    for index, case in enumerate(model.settings.cases if model.has_valid("cases") else ()):
        for name, value in case.values.items():
            if isinstance(value, FillTable):
                yield ("cases", index, "values", name), name, value


def _find_mask_problem(mask: tuple[Dim, ...], output: tuple[Dim, ...]) -> str:
    dims = [dim for dim in mask if dim != 1]
    if not dims:
        return "it has no axis"
    for dim in dims:
        if dims.count(dim) > 1:
            return f"it has {_format_dim(dim)} twice"
        if dim not in output:
            return f"{format_dims(output)} lacks {_format_dim(dim)}"
        if output.count(dim) > 1:
            return f"{format_dims(output)} has {_format_dim(dim)} twice"
    return ""


def _format_dim(dim: Dim) -> str:
    return f"the axis {quote(dim)}" if isinstance(dim, str) else f"the size {dim}"


def format_dims(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"


#: The name of the input set that the inputs themselves describe.
_DECLARED = "declared"


def resolve_cases(model: EffectiveSettings, axes: Sequence[Axis]) -> tuple[Case, ...]:
    input_axes = {axis.name: axis for axis in axes if axis.example is not None}
    examples = {axis.name: axis.example for axis in axes if axis.example is not None}
    owners: dict[str, KeyPath] = {}
    cases = []
    for index, case in enumerate(model.settings.cases):
        path = ("cases", index)
        if case.name == _DECLARED:
            message = f"{quote(_DECLARED)} is reserved for the declared inputs; use another name"
            model.add_problem((*path, "name"), message)
        elif owner := owners.get(case.name):
            message = f"{quote(case.name)} is already the name of {format_key(owner)}"
            model.add_problem((*path, "name"), message)
        owners.setdefault(case.name, path)
        if not case.values and not case.axes and not case.inputs_from:
            message = "has the inputs of the model; add `values`, `axes` or `inputs_from`"
            model.add_problem(path, message)
        if case.inputs_from and case.values:
            message = "`inputs_from` of this case creates all values; remove one of the two keys"
            model.add_problem((*path, "values"), message)
        _check_axes(model, path, case, input_axes)
        if problem := find_size_problem(axes, {**examples, **case.axes}):
            model.add_problem((*path, "axes"), problem)
        cases.append(
            Case(
                name=case.name,
                fills=_resolve_values(model, (*path, "values"), case),
                absent=tuple(name for name, value in case.values.items() if value == OMITTED),
                axes=case.axes,
                inputs_from=resolve_inputs_from(model, (*path, "inputs_from"), case.inputs_from),
            )
        )
    return tuple(cases)


def resolve_inputs_from(
    model: EffectiveSettings, path: KeyPath, function: str
) -> InputsFrom | None:
    """Return the checked function that creates the call, or None if none is set."""
    if not function:
        return None
    return InputsFrom(function=model.check_function(path, function))


def _resolve_values(model: EffectiveSettings, path: KeyPath, case: CaseTable) -> dict[str, Fill]:
    """Return the fills of a case by input, and report those that do not suit their input."""
    inputs: dict[str, InputTable] = {table.name: table for table in model.settings.inputs}
    fills = {}
    for name, value in case.values.items():
        value_path = (*path, name)
        if name not in inputs:
            model.add_problem(value_path, f"no input has this name{suggest_name(name, inputs)}")
        elif value == OMITTED:
            if not inputs[name].optional:
                model.add_problem(value_path, f"the input {quote(name)} is not `optional`")
        elif isinstance(value, str | FillTable):
            dtype = resolve_dtype(model.settings, inputs[name])
            fills[name] = resolve_fill(model, value_path, value, dtype)
        elif problem := find_value_problem(value, resolve_dtype(model.settings, inputs[name])):
            model.add_problem(value_path, problem)
        else:
            fills[name] = Fill(kind="value", value=value)
    return fills


def _check_axes(
    model: EffectiveSettings, path: KeyPath, case: CaseTable, axes: Mapping[str, Axis]
) -> None:
    for name, size in case.axes.items():
        axis_path = (*path, "axes", name)
        if name not in axes:
            model.add_problem(axis_path, f"no input has this axis{suggest_name(name, axes)}")
        elif rule := axes[name].rule:
            message = f"the size of this axis is {rule.formula}; set {join_words(rule.axes)}"
            model.add_problem(axis_path, message)
        else:
            check_size(model, axes[name], axis_path, size)
