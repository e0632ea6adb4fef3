"""The calls of a function that differ in their arguments, described in words."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.operators.opinfo import (
    FunctionSample,
    SampledFunction,
    list_argument_names,
    list_called_operators,
    shift_seeds,
)
from exporter.worker.torch_private.internals import tree_leaves, tree_map

#: Calls of a function that are exported.
_MOST_CALLS = 4
#: Samples of a function that are read, of up to some hundred.
_MOST_SAMPLES = 120
_MOST_ELEMENTS = 100_000
#: Results of fewer elements do not show whether a function is random.
_FEW_ELEMENTS = 8
#: Functions that return memory without values.
_UNINITIALIZED = ("empty", "new_empty")
_MOST_CHARACTERS = 60
#: The end of a feature.
_EMPTY = " without elements"


@dataclass(frozen=True, slots=True)
class SelectedCall:
    """A sample with its description."""

    index: int
    """The position among the samples of the function."""
    operator: str
    text: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelectedCalls:
    """The calls of a function, and the numbers of samples that cannot be compared."""

    calls: tuple[SelectedCall, ...]
    random: int
    other: int


def draw_samples(function: SampledFunction) -> list[FunctionSample]:
    """Return the samples of a function, the same ones in each process."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return list(islice(function.generate(), _MOST_SAMPLES))


def select_calls(function: SampledFunction, packets: frozenset[str]) -> SelectedCalls:
    """Return calls with as many different arguments as possible.

    Args:
        function: The function.
        packets: All ATen operators.
    """
    candidates: list[SelectedCall] = []
    counts = {"random": 0, "other": 0}
    samples = draw_samples(function)
    texts, small = set(), set()
    for index in _order_by_news([_list_features(function, sample, "") for sample in samples]):
        sample = samples[index]
        text = _describe_call(function, sample)
        if text in texts:
            continue
        if len(candidates) == _MOST_CALLS:
            break
        texts.add(text)
        kind, operator, elements = _classify(function, sample, packets)
        if kind:
            counts[kind] += 1
            continue
        if elements < _FEW_ELEMENTS:
            small.add(index)
        candidates.append(
            SelectedCall(
                index=index,
                operator=operator,
                text=text,
                features=_list_features(function, sample, operator),
            )
        )
    if counts["random"]:  # then a few elements may be equal by chance
        counts["random"] += len(small)
        candidates = [call for call in candidates if call.index not in small]
    return SelectedCalls(_add_absences(candidates), counts["random"], counts["other"])


def _order_by_news(features: list[tuple[str, ...]]) -> Iterable[int]:
    """Yield positions: next is always one with most features that none before it has.

    Calls with empty tensors come last: their results are often empty and prove nothing.
    """
    known: set[str] = set()
    left = dict(enumerate(features))

    def rank(index: int) -> tuple[bool, int, int]:
        is_empty = any(feature.endswith(_EMPTY) for feature in left[index])
        return not is_empty, len(set(left[index]) - known), -index

    while left:
        index = max(left, key=rank)
        known |= set(left.pop(index))
        yield index


def _classify(
    function: SampledFunction, sample: FunctionSample, packets: frozenset[str]
) -> tuple[str, str, int]:
    """Return why a call cannot be compared, its operator, and the elements of its result.

    Returns:
        The reason is `random` or `other`; "" if the call can be compared.
    """

    def call(sample: FunctionSample) -> Any:
        return function.function(*sample.args, **sample.kwargs)

    tensors = [each for each in tree_leaves((sample.args, sample.kwargs)) if _is_tensor(each)]
    if sum(tensor.numel() for tensor in tensors) > _MOST_ELEMENTS:
        return "other", "", 0
    torch.manual_seed(1)
    first = [each for each in tree_leaves(call(_copy_sample(sample))) if _is_tensor(each)]
    if not first or any(each.is_sparse or each.is_quantized for each in (*first, *tensors)):
        return "other", "", 0
    copied = _copy_sample(sample)
    operators = list_called_operators(lambda: call(copied))
    with shift_seeds():
        torch.manual_seed(1)
        second = [each for each in tree_leaves(call(_copy_sample(sample))) if _is_tensor(each)]
    is_uninitialized = function.name.startswith(_UNINITIALIZED)
    if is_uninitialized or not all(map(_are_equal, first, second)):
        return "random", "", 0
    operator = _choose_operator(function.name, operators, packets)
    elements = sum(each.numel() for each in first)
    return ("" if operator else "other"), operator, elements


def _choose_operator(name: str, operators: tuple[str, ...], packets: frozenset[str]) -> str:
    """Return the operator of a call, or "" if it consists of several."""
    plain = [
        operator if operator in packets else operator.removesuffix("_") for operator in operators
    ]
    namesake = f"aten::{name.removeprefix('nn.functional.').replace('.', '_')}"
    if namesake in plain and namesake in packets:
        return namesake
    unique = set(plain)
    return unique.pop() if len(unique) == 1 and unique <= packets else ""


def _copy_sample(sample: FunctionSample) -> FunctionSample:
    """Return the sample with copied tensors, because a call may write into them."""

    def copy(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, Tensor) else value

    arguments, keywords = tree_map(copy, (sample.args, sample.kwargs))
    return FunctionSample(arguments, keywords)


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _are_equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, equal_nan=True)


def _name_arguments(
    function: SampledFunction, sample: FunctionSample, operator: str
) -> list[tuple[str, Any]]:
    fallback = f"aten::{function.name.removeprefix('nn.functional.').replace('.', '_')}"
    names = list_argument_names(function.function, operator or fallback, len(sample.args))
    return [*zip(names, sample.args, strict=True), *sample.kwargs.items()]


def _list_features(
    function: SampledFunction, sample: FunctionSample, operator: str
) -> tuple[str, ...]:
    features: list[str] = []
    base = next((each.dtype for each in tree_leaves(sample.args) if _is_tensor(each)), None)
    for name, value in _name_arguments(function, sample, operator):
        tensors = [each for each in tree_leaves(value) if _is_tensor(each)]
        if not tensors:
            features.append(f"{name}={_describe_value(value)}")
        for tensor in tensors[:2]:
            features.append(f"{name} of rank {tensor.dim()}")
            if not tensor.numel():
                features.append(f"{name}{_EMPTY}")
            if tensor.dtype != base:
                features.append(f"{name} of {_dtype(tensor)}")
    return tuple(dict.fromkeys(features))


def _add_absences(calls: list[SelectedCall]) -> tuple[SelectedCall, ...]:
    """Add `without dim` to calls that lack an argument of another one."""

    def read_names(call: SelectedCall) -> set[str]:
        return {feature.partition("=")[0].partition(" of ")[0] for feature in call.features}

    names = sorted({name for call in calls for name in read_names(call)})
    return tuple(
        SelectedCall(
            call.index,
            call.operator,
            call.text,
            (
                *call.features,
                *(f"without {n}" for n in names if n not in read_names(call) and " " not in n),
            ),
        )
        for call in calls
    )


def _describe_call(function: SampledFunction, sample: FunctionSample) -> str:
    parts = [_describe_value(value) for value in sample.args]
    parts += [f"{name}={_describe_value(value)}" for name, value in sample.kwargs.items()]
    return f"{function.name}({', '.join(parts)})"


def _describe_value(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{_dtype(value)}{list(value.shape)}"
    if isinstance(value, list | tuple):
        items = ", ".join(_describe_value(each) for each in value)
        text = f"[{items}]" if isinstance(value, list) else f"({items})"
    elif callable(value) and not isinstance(value, type):
        text = getattr(value, "__name__", "function")
    else:
        text = str(value).removeprefix("torch.")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
