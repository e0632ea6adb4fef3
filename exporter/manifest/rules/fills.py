"""Resolve the values of inputs: fills, masks, lengths and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Dim, Fill, InputsFrom
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import NamedShape
from exporter.manifest.schema.tables import (
    AxisTable,
    FillTable,
)
from exporter.manifest.syntax.fields import FLOATS, MAX_SIZE
from exporter.manifest.syntax.values import KeyPath, format_value, quote

#: The smallest and the largest value of each integer dtype.
_INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
}
COMPLEX = ("complex64", "complex128")
#: Floats represent integers exactly up to this value, and `Fill` stores bounds as floats.
_MAX_EXACT = 2**53

#: The dtypes of each fill; other fills suit every dtype.
_DTYPES = {
    "normal": (*FLOATS, *COMPLEX),
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
    entry: EffectiveSettings,
    key_path: KeyPath,
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
        entry.add_problem(key_path, message)
    elif problem := _find_problem(entry, kind, value, dtype):
        entry.add_problem((*key_path, kind), problem)
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
            file = entry.check_data_file((*key_path, kind), value)
            return Fill(kind=kind, file=file, mode=mode if kind == "image" else "")
        case "python":
            function = entry.check_function((*key_path, kind), value)
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


def _find_problem(entry: EffectiveSettings, kind: str, value: Any, dtype: str) -> str:
    if kind == "value":
        return find_value_problem(value, dtype)
    if kind not in ("uniform", "randint"):
        return ""
    low, high = value
    if isinstance(low, str):
        return f"the lower end is {quote(low)}; write an integer, and the axis as the upper end"
    if isinstance(high, str):
        tables = entry.settings.axes if entry.has_valid("axes") else {}
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


def check_fills(entry: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    """Report lengths, masks and pictures that do not fit the shapes of the inputs."""
    dims = (dim for shape in shapes.values() if shape.is_input for dim in shape.dims)
    axes = [dim for dim in dims if isinstance(dim, str)]
    for key_path, name, fill in _list_fill_tables(entry):
        ends = {"lengths_of": fill.lengths_of, "randint": (fill.randint or (0, 0))[-1]}
        for key, axis in ends.items():
            if isinstance(axis, str) and axis not in axes:
                message = f"no input has this axis{suggest_name(axis, axes)}"
                entry.add_problem((*key_path, key), message)
        if fill.image:
            shape = next(shape for shape in shapes.values() if shape.name == name)
            if problem := _find_image_problem(shape.dims, 3 if fill.mode in (None, "RGB") else 1):
                entry.add_problem((*key_path, "image"), problem)
        for key in ("mask", "padding"):
            if getattr(fill, key) and () in [s.dims for s in shapes.values() if s.name == name]:
                message = "a scalar has no rows; add the axis of the sequence to `shape`"
                entry.add_problem((*key_path, key), message)


def _find_image_problem(dims: tuple[Dim, ...], channels: int) -> str:
    """Return why a picture does not fit an input, or ""."""
    form = '["batch", 3, "height", "width"]' if channels == 3 else '["batch", 1, "height", "width"]'
    if len(dims) < (3 if channels == 3 else 2):
        return f"a picture does not fit the shape {format_dims(dims)}; use, for example, {form}"
    if len(dims) > 2 and dims[-3] != channels:
        modes = 'mode "L" or "Y" has one channel' if channels == 1 else 'mode "RGB" has 3 channels'
        return f"{modes}, not {dims[-3]}; use, for example, the shape {form}, or another mode"
    return ""


def _list_fill_tables(entry: EffectiveSettings) -> Iterator[tuple[KeyPath, str, FillTable]]:
    """Yield the path, the input and the table of each fill of the inputs and the cases."""
    for index, table in enumerate(entry.settings.inputs):
        if isinstance(table.fill, FillTable):
            yield ("inputs", index, "fill"), table.name, table.fill
    for index, case in enumerate(entry.settings.cases if entry.has_valid("cases") else ()):
        for name, value in case.values.items():
            if isinstance(value, FillTable):
                yield ("cases", index, "values", name), name, value


def format_dims(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def resolve_inputs_from(
    entry: EffectiveSettings, key_path: KeyPath, function: str
) -> InputsFrom | None:
    """Return the checked function that creates the call, or None if none is set."""
    if not function:
        return None
    return InputsFrom(function=entry.check_function(key_path, function))
