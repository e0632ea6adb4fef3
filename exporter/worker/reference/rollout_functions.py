"""The project's functions of a rollout: the values of each step, and PyTorch's own loop."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from exporter.core.import_object import load_attribute
from exporter.core.text import join_names, pluralize
from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import Tensors
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.setup import apply_state, use_seed
from exporter.worker.reference.eager_run import Outputs
from exporter.worker.reference.noise import LARGEST_NOISE
from exporter.worker.reference.python_state import lend_model

#: The difference of two loops of PyTorch with the same steps, as a share of the largest noise.
_ROUNDING = 0.1
_FIX = "correct `feeds`, `constants` or the inputs of the entry"
#: The outputs of a step by name.
_Named = Mapping[str, torch.Tensor]


def compute_constants(spec: ModelSpec, root: Path) -> Mapping[str, Sequence[Any]]:
    """Return the value of each step, by the input.

    Raises:
        Failure: Stage `source`, if a function fails, returns too few or too many values, or other
            ones in a second call.
    """
    constants: dict[str, Sequence[Any]] = {}
    if spec.rollout is None:
        return constants
    steps = spec.rollout.steps
    for name, text in spec.rollout.constants.items():
        if not isinstance(text, str):
            constants[name] = [torch.as_tensor(each) for each in text]
            continue
        with wrap_errors(Stage.SOURCE):
            function = _load(text, spec, root)
            arguments = (steps,) if inspect.signature(function).parameters else ()
            tables = []
            for _ in range(2):
                with use_seed(spec.seed), torch.no_grad():
                    tables.append(function(*arguments))
            try:
                sizes = [len(each) for each in tables]
            except TypeError:
                kind = type(tables[0]).__name__
                problem = f"returns a {kind}, expected an array [steps, ...] or a list"
                raise _fail(f"{text}: {problem}") from None
            if other_sizes := [size for size in sizes if size != steps]:
                values = pluralize(other_sizes[0], "value")
                raise _fail(f"{text}: returns {values}, and the loop has {steps} steps")
            first, second = (_read_values(text, table) for table in tables)
            if not all(map(_are_equal, first, second)):
                problem = "returns other values in a second call; draw them from PyTorch's own "
                raise _fail(f"{text}: {problem}generator, which has a fixed seed")
            constants[name] = first
    return constants


def _read_values(text: str, table: Sequence[Any]) -> list[torch.Tensor]:
    values = []
    for number, each in enumerate(table):
        try:
            values.append(torch.as_tensor(each))
        except (TypeError, ValueError, RuntimeError):
            kind = type(each).__name__
            problem = f"is a {kind}, expected a number, an array or equally long lists of numbers"
            raise _fail(f"{text}, step {number + 1}: the value {problem}") from None
    return values


def place_constants(
    spec: ModelSpec, constants: Mapping[str, Sequence[Any]], number: int, inputs: Tensors
) -> Tensors:
    """Return the inputs of a step, counted from 0, with the values that the project sets.

    Those after the last step remain as they are.

    Raises:
        Failure: Stage `source`, if a value has another dtype or shape, or is not finite.
    """
    if spec.rollout is None or number == spec.rollout.steps:
        return inputs
    items = {item.name: item for item in spec.inputs}
    placed = dict(inputs)
    for name, values in constants.items():
        value, declared = values[number], inputs[name]
        text = spec.rollout.constants[name]
        source = text if isinstance(text, str) else f"rollout.constants.{name}"
        subject = f"{source}, step {number + 1}"
        cast = value.to(declared.device, declared.dtype)
        if problem := _find_problem(value, cast, items[name], declared):
            raise _fail(f"{subject}: the value of '{name}' {problem}")
        placed[name] = cast.expand(declared.shape).clone()
    return placed


def _find_problem(value: torch.Tensor, cast: torch.Tensor, item: Input, declared: Any) -> str:
    """Return how a value does not fit an input; "" if it does."""
    kinds = [_rank_kind(each) for each in (value.dtype, cast.dtype)]
    is_exact = _are_equal(cast.to(value.dtype), value)
    # A rounded float is right; another integer is not.
    if kinds[0] > kinds[1] or (kinds[0] < kinds[1] and not (kinds[0] and is_exact)):
        return f"is {_name(value.dtype)}, declared {item.dtype}"
    if kinds[0] == kinds[1] == 1 and not is_exact:
        return f"is out of the range of {item.dtype}"
    shape, expected = list(value.shape), list(declared.shape)
    fits = len(shape) <= len(expected) and all(
        size in (1, other) for size, other in zip(reversed(shape), reversed(expected), strict=False)
    )
    if not fits:
        return f"has the shape {shape}, the input has {expected}"
    return "" if bool(torch.isfinite(cast).all()) else f"is not finite in {item.dtype}"


def _rank_kind(dtype: torch.dtype) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats, and 3 for complex numbers."""
    if dtype is torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def run_loop(model: Model, spec: ModelSpec, inputs: Tensors, root: Path) -> Sequence[_Named]:
    """Return the outputs of each step of PyTorch's own loop by name; those of a step may be none.

    Raises:
        Failure: Stage `source`, if the loop fails or changes weights, or if its result does not fit
            the entry.
    """
    if spec.rollout is None or not spec.rollout.loop:
        return ({},) * (spec.rollout.steps if spec.rollout else 0)
    text, steps = spec.rollout.loop, spec.rollout.steps
    with wrap_errors(Stage.SOURCE):
        function = _load(text, spec, root)
        given = {name: value.clone() for name, value in inputs.items()}
        with lend_model(model, text), apply_state(spec), use_seed(spec.seed):
            returned = function(model, given)
            if not isinstance(returned, list | Iterator):
                return [*({},) * (steps - 1), _name_outputs(text, spec, returned)]
            # The loop of a generator continues, and can write into what it has yielded.
            named = [_name_outputs(text, spec, each) for each in returned]
        if len(named) != steps:
            count = pluralize(len(named), "step")
            raise _fail(f"{text}: returns {count}, and `rollout` has {steps}")
        return named


def _name_outputs(text: str, spec: ModelSpec, returned: Any) -> _Named:
    names = [output.name for output in spec.outputs]
    if isinstance(returned, torch.Tensor):
        returned = (returned,)
    if isinstance(returned, tuple):
        if len(returned) != len(names):
            values = pluralize(len(returned), "value")
            problem = f"returns {values}, and the entry has the outputs {join_names(names)}"
            raise _fail(f"{text}: {problem}; return a dict by their names")
        returned = dict(zip(names, returned, strict=True))
    if not isinstance(returned, Mapping) or not returned:
        kind = type(returned).__name__
        raise _fail(f"{text}: returns a {kind}, expected a tensor, a tuple or a dict by names")
    if unknown := [str(name) for name in returned if name not in names]:
        problem = f"returns {join_names(unknown)}, and the entry has the outputs"
        raise _fail(f"{text}: {problem} {join_names(names)}")
    for name, value in returned.items():
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            raise _fail(f"{text}: the output '{name}' is a {kind}, expected a tensor")
    return {name: value.detach().to("cpu", copy=True) for name, value in returned.items()}


def require_loop(
    spec: ModelSpec, number: int, outputs: Outputs, returned: Sequence[_Named]
) -> Outputs:
    """Return the outputs of a step, counted from 0, with those of PyTorch's own loop.

    `returned`: The outputs of all steps of the loop; none of a model without one.

    Raises:
        Failure: Stage `source`, if they differ by more than rounding.
    """
    result = list(outputs)
    loop, steps = (spec.rollout.loop, spec.rollout.steps) if spec.rollout else (None, 0)
    for position, output in enumerate(spec.outputs):
        value, expected = outputs[position], returned[number].get(output.name) if returned else None
        if expected is None:
            continue
        subject = f"rollout: step {number + 1} of {steps}: output '{output.name}'"
        fix = _FIX
        if isinstance(value, list) or value.shape != expected.shape:
            shape = "a list" if isinstance(value, list) else f"{list(value.shape)}"
            problem = f"is {shape}, and {list(expected.shape)} in {loop}"
            raise _fail(f"{subject} {problem}; {fix}")
        if difference := _find_difference(value, expected):
            last = returned[-1].get(output.name)
            if number < steps - 1 and last is not None and _are_equal(expected, last):
                fix = f"{loop} has the value of the last step; if it changes one tensor in each "
                fix += f"step, return `clone()` of it; else {_FIX}"
            raise _fail(f"{subject} differs from {loop} {difference}; {fix}")
        result[position] = expected.to(value.dtype)
    return tuple(result)


def _find_difference(value: torch.Tensor, expected: torch.Tensor) -> str:
    """Return how far an output is from that of the loop; "" if by no more than rounding."""
    is_same = (value == expected) | (value.isnan() & expected.isnan())
    if is_same.all():
        return ""
    if not (value.is_floating_point() or value.is_complex()):
        return f"in {int((~is_same).sum())} of {pluralize(value.numel(), 'element')}"
    widest = torch.complex128 if value.is_complex() else torch.float64
    error = float((value.to(widest) - expected.to(widest)).abs()[~is_same].max())
    finite = expected.abs()[expected.isfinite()].double()
    scale = float(finite.max()) if finite.numel() else 0.0
    if error <= LARGEST_NOISE.get(value.dtype, 1e-3) * _ROUNDING * scale:
        return ""
    return "by NaN" if math.isnan(error) else f"by {error:.3g} of {scale:.3g}"


def _load(text: str, spec: ModelSpec, root: Path) -> Any:
    function = load_attribute(text, (root / spec.manifest).parent)
    if not callable(function):
        raise _fail(f"{text}: is a {type(function).__name__}, expected a function")
    return function


def _are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    is_same = first.shape == second.shape and first.dtype == second.dtype
    return is_same and torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _fail(message: str) -> Failure:
    return Failure(Stage.SOURCE, message, status=Status.FAIL)
