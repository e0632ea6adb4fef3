"""Further inputs that the contract allows, far from the stored samples.

A table of weights is read row by row, by an index from an input or by the position along an axis.
No random input finds one row of thirty thousand. So a changed row has its own trials: this index
in all inputs, and an axis that is long enough to reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.manifest import (
    Axis,
    Case,
    Fill,
    Input,
    ModelSpec,
)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

#: Fills that only the worker draws.
_WORKER_FILLS = ("file", "python", "function", "mask", "padding", "lengths_of")
#: The largest size of an axis that is used to reach a row.
_MAX_SIZE = 1024
#: Number of trials with the exported sizes, and of trials with other sizes.
_DRAWS = 3
#: Steps by which a drawn size may exceed the exported one.
_MAX_STEPS = 3


class NoSuchInput(Exception):
    """The fills of the contract cannot give the inputs of a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The plan of one set of inputs."""

    name: str
    sizes: Mapping[str, int]
    index: int | None = None
    """The value of every integer input with a range that contains it."""
    number: float | None = None
    """The value of every floating input with a range that contains it."""
    case: Case | None = None


def plan_trials(
    spec: ModelSpec,
    seed: int,
    rows: Sequence[int],
    sizes: Sequence[Mapping[str, int]] = (),
    numbers: Sequence[float] = (),
) -> Iterator[Trial]:
    """Yield trials for a mutant that no check caught, the cheap and effective ones first."""
    example = {axis.name: axis.example for axis in spec.free_axes if axis.example is not None}
    requested = [{**example, **each} for each in sizes if example.keys() >= each.keys()]
    first = [Trial(name=f"sizes {_format_sizes(each)}", sizes=each) for each in requested]
    first += [
        Trial(name=f"number {number:g} everywhere", sizes=example, number=number)
        for number in numbers
    ]
    for trial in (*first, *_plan_free_sizes(spec, seed, rows)):
        if spec.allows_sizes(trial.sizes):
            yield replace(trial, sizes=spec.complete_sizes(trial.sizes))


def _plan_free_sizes(spec: ModelSpec, seed: int, rows: Sequence[int]) -> Iterator[Trial]:
    """Yield trials with sizes of the axes that are not derived."""
    axes = spec.free_axes
    example = {axis.name: axis.example for axis in axes if axis.example is not None}
    rng = np.random.default_rng([seed, len(axes)])
    for number in range(1, _DRAWS + 1):
        yield Trial(name=f"other values ({number})", sizes=example)
    for row in rows:
        yield Trial(name=f"index {row} everywhere", sizes=example, index=row)
        yield from _plan_long_axes(axes, example, row)
    smallest = {axis.name: _find_smallest_size(axis) for axis in axes}
    if smallest != example:
        yield Trial(name=f"smallest sizes {_format_sizes(smallest)}", sizes=smallest)
    for _ in range(_DRAWS if axes else 0):
        sizes = {}
        for axis in axes:
            unit, low = axis.multiple_of, _find_smallest_size(axis)
            limit = min(axis.max or 1 << 30, (axis.example or 1) + _MAX_STEPS * unit)
            sizes[axis.name] = int(rng.integers(low // unit, max(low, limit) // unit + 1)) * unit
        yield Trial(name=f"other values, {_format_sizes(sizes)}", sizes=sizes)
    for case in spec.cases:
        yield Trial(name=f"case {case.name}", sizes={**example, **case.axes}, case=case)


def _plan_long_axes(axes: Sequence[Axis], example: Mapping[str, int], row: int) -> Iterator[Trial]:
    """Yield trials with an axis that is just long enough to contain the row."""
    smallest = {axis.name: 1 if axis.allows(1) else example[axis.name] for axis in axes}
    for axis in axes:
        size = -(-(row + 1) // axis.multiple_of) * axis.multiple_of
        if (axis.example or 0) < size <= _MAX_SIZE and axis.allows(size):
            sizes = {**smallest, axis.name: size}
            yield Trial(name=f"sizes {_format_sizes(sizes)}", sizes=sizes)


def _find_smallest_size(axis: Axis) -> int:
    return -(-max(axis.min, 1) // axis.multiple_of) * axis.multiple_of


def _format_sizes(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def draw_inputs(
    spec: ModelSpec, trial: Trial, stored: Sequence[Inputs], seed: int
) -> dict[str, Array]:
    """Return the inputs of a trial.

    Args:
        spec: The contract.
        trial: The plan.
        stored: The inputs of the stored samples.
        seed: The same seed gives the same values.

    Raises:
        NoSuchInput: if a fill needs a sample with these sizes and there is none, or if no input
            accepts the index of the trial.
    """
    index, fills = trial.index, [item.fill for item in spec.inputs]
    number = trial.number
    if index is not None and not any(_accepts_index(fill, index) for fill in fills):
        raise NoSuchInput("no input accepts this index")
    if number is not None and not any(_accepts_number(item, number) for item in spec.inputs):
        raise NoSuchInput("no input accepts this number")
    inputs = {}
    for position, item in enumerate(spec.inputs):
        dims = item.file_shape
        shape = tuple(trial.sizes[dim] if isinstance(dim, str) else dim for dim in dims)
        text = f"{trial.name}/{position}".encode()
        rng = np.random.default_rng([seed, *text])
        fill = trial.case.fills.get(item.name, item.fill) if trial.case else item.fill
        fill = fill.bind(trial.sizes)
        if trial.case and item.name in trial.case.absent:
            continue
        if _needs_sample(fill, trial.case):
            inputs[item.name] = _select_stored(item, shape, stored, rng)
        elif index is not None and _accepts_index(fill, index):
            inputs[item.name] = np.full(shape, index, _find_dtype(item))
        elif number is not None and _accepts_number(item, number):
            inputs[item.name] = np.full(shape, number, _find_dtype(item))
        else:
            inputs[item.name] = _draw_fill(fill, shape, rng).astype(_find_dtype(item))
    return inputs


def _needs_sample(fill: Fill, case: Case | None) -> bool:
    """Return True if only the worker can draw the values: from files or user code."""
    is_from_code = case is not None and case.inputs_from is not None
    return is_from_code or fill.kind in _WORKER_FILLS


def _accepts_index(fill: Fill, index: int) -> bool:
    return fill.kind == "randint" and fill.low <= index < fill.high


def _accepts_number(item: Input, number: float) -> bool:
    fill = item.fill
    is_inside = fill.kind == "normal" or (
        fill.kind == "uniform" and fill.low <= number <= fill.high
    )
    return is_inside and "float" in item.dtype


def _select_stored(
    item: Input, shape: tuple[int, ...], stored: Sequence[Inputs], rng: np.random.Generator
) -> Array:
    arrays = [inputs[item.name] for inputs in stored if item.name in inputs]
    matching = [array for array in arrays if array.shape == shape]
    if not matching:
        raise NoSuchInput(f"no sample has '{item.name}' in this size")
    return matching[int(rng.integers(len(matching)))]


def _find_dtype(item: Input) -> np.dtype[Any]:
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    dtype = item.file_dtype
    kind = TensorProto.DataType.Value(names.get(dtype, dtype.upper()))
    return tensor_dtype_to_np_dtype(kind)


def _draw_fill(fill: Fill, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    match fill.kind:
        case "normal":
            return rng.standard_normal(shape)
        case "uniform":
            return rng.uniform(fill.low, fill.high, shape)
        case "randint":
            return rng.integers(int(fill.low), int(fill.high), shape)
        case "bernoulli":
            return rng.random(shape) < fill.probability
        case "zeros":
            return np.zeros(shape)
        case "ones":
            return np.ones(shape)
        case "arange":
            return rng.permutation(int(np.prod(shape))).reshape(shape)
        case "value":
            value = np.asarray(fill.value)
            return np.broadcast_to(value, shape).copy() if value.ndim == 0 else value
        case "file" | "image" | "python" | "function" | "mask" | "padding" | "lengths_of":
            raise NoSuchInput("only the worker can draw its values")
