"""Whether an operator without a translation is taken apart into operators that have one.

In: operators and what dynamo has at some opsets. Out: for each operator and opset yes, where a call
of it was seen to end in translated operators alone; no where that was not seen, which is no proof
of the contrary.

The call is exported as a model of its own. It gets what the operator's schema asks for, small and
plain; what does not run with any of that is not proved.
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

from exporter.tools.operators.child.forked_calls import each_in_a_child
from exporter.worker.torch_private.registries import (
    DynamoRegistry,
    Operator,
    has_tensor_results,
    list_parameters,
    list_program_operators,
)
from exporter.worker.torch_private.tensor_internals import create_fake_mode

_SHAPES = ((2, 3, 4, 4), (1, 1, 3), (2, 3, 4), (3, 3), (3,))
_DTYPES = (torch.float32, torch.int64, torch.bool)
#: So many different calls of an operator are exported, until one ends well.
_MOST_CALLS = 2
#: Arguments that are whole numbers whatever the others are.
_WHOLE = ("index", "indices", "target", "offsets", "lengths", "repeats")
#: A value for a required argument, by the type that its schema names.
_VALUES: Mapping[str, object] = {
    "int": 1,
    "SymInt": 1,
    "number": 2,
    "Scalar": 2,
    "float": 0.5,
    "bool": False,
    "str": "mean",
}

Call = tuple[list[Any], dict[str, Any]]


def prove_decompositions(
    operators: Sequence[Operator], registries: Sequence[DynamoRegistry]
) -> dict[str, tuple[bool, ...]]:
    """For each operator, by name, whether it ends in translated ones with each registry.

    Some operators take the process down when they are called in a way they do not like: then
    nothing is proved of them.
    """
    tables = [_Table(registry) for registry in registries]
    named = {str(operator): operator for operator in operators}

    def ask(name: str) -> list[bool]:
        with _quietly(), torch.no_grad():
            return _ends_translated(named[name], tables)

    nothing = (False,) * len(tables)
    answers = each_in_a_child(list(named), ask)
    return {name: tuple(answers[name]) if name in answers else nothing for name in named}


@dataclass(frozen=True, slots=True)
class _Trace:
    """What one call ended in."""

    targets: frozenset[str]
    """Every operator that is left."""
    used: frozenset[str]
    """Every operator that a decomposition took apart on the way."""


class _Table:
    """A registry whose decompositions say when they are used."""

    def __init__(self, registry: DynamoRegistry) -> None:
        self.translated = registry.translated
        self._used: set[str] = set()
        self._decompositions = {
            operator: self._noting(str(operator), how)
            for operator, how in registry.decompositions.items()
        }

    def trace(self, operator: Operator, call: Call) -> _Trace | None:
        """What the call ends in; None where it does not run, or is not taken apart."""
        self._used.clear()
        with contextlib.suppress(Exception):  # whatever an operator says to a call it dislikes
            program = torch.export.export(_Calling(operator), tuple(call[0]), call[1])
            targets = list_program_operators(program.run_decompositions(dict(self._decompositions)))
            # A number that torch.export computed itself leaves nothing that could be translated.
            if str(operator) not in targets and (targets or has_tensor_results(operator)):
                return _Trace(targets, frozenset(self._used))
        return None

    def _noting(self, name: str, how: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            self._used.add(name)
            return how(*args, **kwargs)

        return noting


class _Calling(torch.nn.Module):
    """A model of one operator."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self._operator = operator

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)


def _ends_translated(operator: Operator, tables: Sequence[_Table]) -> list[bool]:
    calls = list(islice(_calls_that_run(operator), _MOST_CALLS))
    verdicts: list[bool] = []
    traces: list[_Trace] | None = None
    for table in tables:
        # Where nothing that was taken apart on the way has a translation now, calls end as before.
        if traces is None or any(trace.used & table.translated for trace in traces):
            traces = list(_traces(operator, calls, table))
        verdicts.append(any(trace.targets <= table.translated for trace in traces))
    return verdicts


def _traces(operator: Operator, calls: Sequence[Call], table: _Table) -> Iterator[_Trace]:
    """What the calls end in, up to the first that ends well."""
    for call in calls:
        if trace := table.trace(operator, call):
            yield trace
            if trace.targets <= table.translated:
                return


def _calls_that_run(operator: Operator) -> Iterator[Call]:
    """Arguments that the operator takes, as seen on fake tensors."""
    for dtype in _DTYPES:
        for shape in _SHAPES:
            call = _call(operator, shape, dtype)
            if call is None:
                return
            runs = False
            fake = create_fake_mode()
            with contextlib.suppress(Exception), fake:
                operator(*call[0], **call[1])
                runs = True
            if runs:
                yield call


def _call(operator: Operator, shape: tuple[int, ...], dtype: torch.dtype) -> Call | None:
    """Arguments for the required parameters; None where one is of a kind that has no sample."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in list_parameters(operator):
        if parameter.has_default_value():
            continue
        value = _value(parameter, shape, torch.int64 if parameter.name in _WHOLE else dtype)
        if value is NotImplemented:
            return None
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


def _value(parameter: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    kind = str(parameter.type)
    if kind == "Tensor":
        return torch.ones(shape, dtype=dtype)
    if kind == "List[Tensor]":
        return [torch.ones(shape, dtype=dtype) for _ in range(2)]
    if kind in ("List[int]", "List[SymInt]"):
        return _whole_numbers(parameter, shape)
    if kind.startswith("Optional["):
        return None
    return _VALUES.get(kind, NotImplemented)


def _whole_numbers(parameter: Any, shape: tuple[int, ...]) -> list[int]:
    """A shape for what describes one, the first axis for axes; strides and pads get ones."""
    if "shape" in parameter.name:
        return list(shape)
    if "dim" in parameter.name and not parameter.N:
        return [0]
    return [1] * (parameter.N or len(shape))


@contextmanager
def _quietly() -> Iterator[None]:
    """Calls that an operator refuses are many, and torch logs a traceback for each."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
