"""A test whether an operator without a translation is decomposed into translated operators.

Each call is exported as a model of its own, with small arguments that match the operator's schema.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from benchmarks.forked_calls import CallLimits, Returned, call_each_in_forks
from exporter.worker.torch_private.internals import create_fake_mode
from exporter.worker.torch_private.registries import (
    DynamoRegistry,
    Operator,
    has_tensor_results,
    list_parameters,
    list_program_operators,
)

_SHAPES = ((2, 3, 4, 4), (1, 1, 3), (2, 3, 4), (3, 3), (3,))
_DTYPES = (torch.float32, torch.int64, torch.bool)
#: The number of calls of an operator that are exported, until one is proved.
_MOST_CALLS = 2
#: Arguments that need integers, independent of the dtype of the others.
_INTEGERS = ("index", "indices", "target", "offsets", "lengths", "repeats")
#: A value for a required argument, by its type in the schema.
_VALUES: Mapping[str, object] = {
    "int": 1,
    "SymInt": 1,
    "number": 2,
    "Scalar": 2,
    "float": 0.5,
    "bool": False,
    "str": "mean",
}

#: An operator needs less; a call that hangs without computing is rare.
_LIMITS = CallLimits(cpu_seconds=20, seconds=600)

Call = tuple[list[Any], dict[str, Any]]


def prove_decompositions(
    operators: Sequence[Operator], registries: Sequence[DynamoRegistry]
) -> dict[str, tuple[bool, ...]]:
    """Return by operator name, for each registry, True if a decomposition is proved.

    Some operators crash the process if an argument is invalid; these are not proved.
    """
    recorders = [_DecompositionRecorder(registry) for registry in registries]

    def prove(operator: Operator) -> list[bool]:
        with _silence_logs(), torch.no_grad():
            return _prove_operator(operator, recorders)

    results = call_each_in_forks(prove, operators, _LIMITS)
    return {
        str(operator): tuple(result.value)
        if isinstance(result, Returned)
        else (False,) * len(recorders)
        for operator, result in zip(operators, results, strict=True)
    }


@dataclass(frozen=True, slots=True)
class _DecomposedCall:
    """The operators of one decomposed call."""

    remaining: frozenset[str]
    """The operators of the decomposed program."""
    decomposed: frozenset[str]
    """The operators that a decomposition replaced."""


class _DecompositionRecorder:
    """A registry that records which of its decompositions are called."""

    def __init__(self, registry: DynamoRegistry) -> None:
        self.translated = registry.translated
        self._called: set[str] = set()
        self._decompositions = {
            operator: self._record_calls(str(operator), function)
            for operator, function in registry.decompositions.items()
        }

    def decompose(self, operator: Operator, call: Call) -> _DecomposedCall | None:
        """Export and decompose the call; None if it fails or is not decomposed."""
        self._called.clear()
        with contextlib.suppress(Exception):  # an operator may refuse the arguments in any way
            program = torch.export.export(_OperatorModule(operator), tuple(call[0]), call[1])
            program = program.run_decompositions(dict(self._decompositions))
            remaining = list_program_operators(program)
            # If torch.export computed a number itself, no operator remains to be translated.
            if str(operator) not in remaining and (remaining or has_tensor_results(operator)):
                return _DecomposedCall(remaining, frozenset(self._called))
        return None

    def _record_calls(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            self._called.add(name)
            return function(*args, **kwargs)

        return record


class _OperatorModule(torch.nn.Module):
    """A model of one operator."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self._operator = operator

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)


def _prove_operator(operator: Operator, recorders: Sequence[_DecompositionRecorder]) -> list[bool]:
    calls = list(islice(_find_valid_calls(operator), _MOST_CALLS))
    verdicts: list[bool] = []
    results: list[_DecomposedCall] | None = None
    for recorder in recorders:
        # If no operator that was decomposed has a translation now, the results are the same.
        if results is None or any(each.decomposed & recorder.translated for each in results):
            results = []
            for call in calls:
                if result := recorder.decompose(operator, call):
                    results.append(result)
                    if result.remaining <= recorder.translated:
                        break
        verdicts.append(any(each.remaining <= recorder.translated for each in results))
    return verdicts


def _find_valid_calls(operator: Operator) -> Iterator[Call]:
    """Yield arguments that the operator accepts on fake tensors."""
    for dtype in _DTYPES:
        for shape in _SHAPES:
            call = _build_call(operator, shape, dtype)
            if call is None:
                return
            is_valid = False
            with contextlib.suppress(Exception), create_fake_mode():
                operator(*call[0], **call[1])
                is_valid = True
            if is_valid:
                yield call


def _build_call(operator: Operator, shape: tuple[int, ...], dtype: torch.dtype) -> Call | None:
    """Return the required arguments, or None if a parameter has an unknown type."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in list_parameters(operator):
        if parameter.has_default_value():
            continue
        value = _sample_value(
            parameter, shape, torch.int64 if parameter.name in _INTEGERS else dtype
        )
        if value is NotImplemented:
            return None
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


def _sample_value(parameter: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    kind = str(parameter.type)
    if kind == "Tensor":
        return torch.ones(shape, dtype=dtype)
    if kind == "List[Tensor]":
        return [torch.ones(shape, dtype=dtype) for _ in range(2)]
    if kind in ("List[int]", "List[SymInt]"):
        # A shape, the first axis, or ones for strides and pads.
        if "shape" in parameter.name:
            return list(shape)
        is_axis = "dim" in parameter.name and not parameter.N
        return [0] if is_axis else [1] * (parameter.N or len(shape))
    if kind.startswith("Optional["):
        return None
    return _VALUES.get(kind, NotImplemented)


@contextmanager
def _silence_logs() -> Iterator[None]:
    """Disable logging: torch logs a traceback for each of many refused calls."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
