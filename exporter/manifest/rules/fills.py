"""How an input gets its values: the fill that suits its dtype, and values of the right kind.

In: the fill of an input as written. Out: a `Fill`, or what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.tables import FillTable, list_explicit_values
from exporter.manifest.spec.call import Fill
from exporter.manifest.syntax.message_format import KeyPath, format_value

FLOATS = ("float32", "float16", "bfloat16", "float64")
_INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
}
_COMPLEX = ("complex64", "complex128")
#: Bounds are kept as floats, which are exact up to here.
_EXACT = 2**53

_SUITS = {
    "normal": (*FLOATS, *_COMPLEX),
    "arange": (*FLOATS, *_INTS),
    "uniform": FLOATS,
    "randint": (*FLOATS, *_INTS),
    "bernoulli": (*FLOATS, *_INTS, "bool"),
}


def resolve_fill(
    model: EffectiveSettings, place: KeyPath, fill: str | FillTable, dtype: str
) -> Fill:
    """The fill of the input at `place`; where it does not suit the dtype, that is reported."""
    path = (*place, "fill")
    kind, value = _written(fill)
    if dtype not in _SUITS.get(kind, (dtype,)):
        model.add_problem(path, f"'{kind}' does not suit {dtype}; {_suggestion(dtype)}")
    elif problem := _problem(kind, value, dtype):
        model.add_problem((*path, kind), problem)
    match kind:
        case "uniform" | "randint":
            return Fill(kind=kind, low=float(value[0]), high=float(value[1]))
        case "bernoulli":
            return Fill(kind=kind, probability=float(value))
        case "value":
            return Fill(kind=kind, value=value)
        case "file":
            return Fill(kind=kind, file=value)
        case "python":
            return Fill(kind=kind, python=value)
        case _:
            return Fill.model_validate({"kind": kind})


def _written(fill: str | FillTable) -> tuple[str, Any]:
    if isinstance(fill, str):
        return fill, None
    ((kind, value),) = list_explicit_values(fill).items()
    return kind, value


def find_value_problem(value: object, dtype: str) -> str:
    """Why an input of `dtype` cannot hold `value` or one of its items; empty where it can."""
    for item in _leaves(value):
        if dtype == "bool" and not isinstance(item, bool):
            return f"bool inputs take true and false, not {format_value(item)}"
        if dtype != "bool" and isinstance(item, bool):
            return f"{dtype} inputs take numbers, not {format_value(item)}"
        if dtype in _INTS:
            low, high = _INTS[dtype]
            if not isinstance(item, int):
                return f"{dtype} inputs take integers, not {format_value(item)}"
            if not low <= item <= high:
                return (
                    f"{dtype} inputs take integers from {low} to {high}, not {format_value(item)}"
                )
    return ""


def _problem(kind: str, value: Any, dtype: str) -> str:
    if kind == "value":
        return find_value_problem(value, dtype)
    if kind not in ("uniform", "randint"):
        return ""
    low, high = value
    if low >= high:
        return (
            f"the upper end, {format_value(high)}, must be above the lower one, {format_value(low)}"
        )
    if max(abs(low), abs(high)) > _EXACT:
        return f"bounds beyond {_EXACT} are not exact"
    return find_value_problem([low, high - 1], dtype) if kind == "randint" else ""


def _suggestion(dtype: str) -> str:
    if dtype == "bool":
        return "write, for example, fill = { bernoulli = 0.5 }"
    if dtype in _INTS:
        return "write, for example, fill = { randint = [0, 10] }"
    return 'write, for example, fill = "normal"'


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
