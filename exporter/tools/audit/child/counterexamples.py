"""Further inputs that the contract allows, far from the stored samples.

In: a contract, the stored samples, a seed, and where the audit changed a weight. Out: `Trial`s,
named sets of inputs. Drawn here and not by PyTorch, so that nothing is taken from the samples but
values that only they know (a fill written in Python). Values are those of the contract's fills:
how exact PyTorch is at other magnitudes is not known, and so neither is what would be wrong there.

A table of weights is read row by row, by an index that an input gives or by the place along an
axis. No random input finds one row among thirty thousand, so a changed row has trials of its own:
that index everywhere, and an axis long enough to reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

#: The longest that an axis is made to reach a row.
_LONGEST = 1024
#: So often are values drawn at the exported sizes, and so often other sizes.
_DRAWS = 3
#: How far sizes go beyond the exported one.
_BEYOND = 3


class NoSuchInput(Exception):
    """The contract's fills give no such inputs here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to draw."""

    name: str
    sizes: Mapping[str, int]
    index: int | None = None
    """The value of every integer input whose range has it."""
    case: Case | None = None


def plan_trials(spec: ModelSpec, seed: int, rows: Sequence[int]) -> Iterator[Trial]:
    """What to try on a mutant that no check caught, the cheap and telling ones first."""
    axes = [axis for axis in spec.axes if axis.example is not None]
    example = {axis.name: axis.example for axis in axes if axis.example is not None}
    rng = np.random.default_rng([seed, len(axes)])
    for number in range(1, _DRAWS + 1):
        yield Trial(name=f"other values ({number})", sizes=example)
    for row in rows:
        yield Trial(name=f"index {row} everywhere", sizes=example, index=row)
        yield from _reaching(axes, example, row)
    smallest = {axis.name: _smallest(axis) for axis in axes}
    if smallest != example:
        yield Trial(name=f"smallest sizes {_words(smallest)}", sizes=smallest)
    for _ in range(_DRAWS if axes else 0):
        sizes = {axis.name: _any(axis, rng) for axis in axes}
        yield Trial(name=f"other values, {_words(sizes)}", sizes=sizes)
    for case in spec.cases:
        yield Trial(name=f"case {case.name}", sizes={**example, **case.axes}, case=case)


def _reaching(axes: Sequence[Axis], example: Mapping[str, int], row: int) -> Iterator[Trial]:
    """Sizes at which the place along an axis is the row."""
    for axis in axes:
        wanted = -(-(row + 1) // axis.multiple_of) * axis.multiple_of
        if wanted > (axis.example or 0) and wanted <= _LONGEST and axis.allows(wanted):
            sizes = {name: 1 if _allows(axes, name, 1) else size for name, size in example.items()}
            sizes[axis.name] = wanted
            yield Trial(name=f"sizes {_words(sizes)}", sizes=sizes)


def _allows(axes: Sequence[Axis], name: str, size: int) -> bool:
    return any(axis.name == name and axis.allows(size) for axis in axes)


def _smallest(axis: Axis) -> int:
    unit = axis.multiple_of
    return -(-max(axis.min, 1) // unit) * unit


def _any(axis: Axis, rng: np.random.Generator) -> int:
    unit, low = axis.multiple_of, _smallest(axis)
    high = max(low, min(axis.max or 1 << 30, (axis.example or 1) + _BEYOND * unit))
    return int(rng.integers(low // unit, high // unit + 1)) * unit


def _words(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def draw_inputs(
    spec: ModelSpec, trial: Trial, stored: Sequence[Inputs], seed: int
) -> dict[str, Array]:
    """The inputs of a trial.

    Args:
        spec: The contract.
        trial: What to draw.
        stored: The inputs of the stored samples.
        seed: The same seed gives the same values.

    Raises:
        Impossible: where a fill that only PyTorch can draw has no sample of these sizes, or no
            input takes the index that the trial is about.
    """
    if trial.index is not None and not any(_takes(i.fill, trial.index) for i in spec.inputs):
        raise NoSuchInput("no input takes this index")
    inputs = {}
    for number, item in enumerate(spec.inputs):
        dims = item.file_shape
        shape = tuple(trial.sizes[dim] if isinstance(dim, str) else dim for dim in dims)
        text = f"{trial.name}/{number}".encode()
        rng = np.random.default_rng([seed, *text])
        fill = item.fill
        if trial.case and item.name in trial.case.values:
            fill = Fill(kind="value", value=trial.case.values[item.name])
        if trial.case and item.name in trial.case.absent:
            continue
        if _is_made(spec, item, fill, trial.case):
            inputs[item.name] = _from_samples(item, shape, stored, rng)
        elif trial.index is not None and _takes(fill, trial.index):
            inputs[item.name] = np.full(shape, trial.index, _dtype(item))
        else:
            inputs[item.name] = _filled(fill, shape, rng).astype(_dtype(item))
    return inputs


def _is_made(spec: ModelSpec, item: Input, fill: Fill, case: Case | None) -> bool:
    """Whether only the worker has the values: those of files and of user code."""
    by_case = case is not None and (case.inputs_from is not None or item.name in case.files)
    return by_case or spec.inputs_from is not None or fill.kind in ("file", "python")


def _takes(fill: Fill, index: int) -> bool:
    return fill.kind == "randint" and fill.low <= index < fill.high


def _from_samples(
    item: Input, shape: tuple[int, ...], stored: Sequence[Inputs], rng: np.random.Generator
) -> Array:
    known = [inputs[item.name] for inputs in stored if item.name in inputs]
    fitting = [array for array in known if array.shape == shape]
    if not fitting:
        raise NoSuchInput(f"no sample has '{item.name}' in this size")
    return fitting[int(rng.integers(len(fitting)))]


def _dtype(item: Input) -> np.dtype[Any]:
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    dtype = item.file_dtype
    kind = TensorProto.DataType.Value(names.get(dtype, dtype.upper()))
    return tensor_dtype_to_np_dtype(kind)


def _filled(fill: Fill, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
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
        case "file" | "python":
            raise NoSuchInput("only the worker has its values")
