"""Samples of torch's own tests of operators, and the operators that a call uses."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.profiler import profile

from exporter.worker.torch_private.guards import replace_attribute

#: Samples have the first of these dtypes that the operator supports.
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


@dataclass(frozen=True, slots=True)
class FunctionSample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SampledFunction:
    """A function of torch, and torch's generator of its samples."""

    name: str
    """With the variant of the test: `std.unbiased`."""
    function: Callable[..., Any]
    generate: Callable[[], Iterator[FunctionSample]]


def list_sampled_functions() -> dict[str, SampledFunction]:
    """Return all functions that torch's tests have samples of, by name.

    Raises:
        ImportError: if torch's tests cannot be imported.
    """
    module = importlib.import_module("torch.testing._internal.common_methods_invocations")
    functions = {}
    for test in module.op_db:
        name = ".".join(part for part in (test.name, test.variant_test_name) if part)
        functions[name] = SampledFunction(name, test.op, _make_generator(test))
    return functions


def _make_generator(test: Any) -> Callable[[], Iterator[FunctionSample]]:
    def generate() -> Iterator[FunctionSample]:
        dtype = next(dtype for dtype in _DTYPES if dtype in test.dtypes)
        for sample in test.sample_inputs("cpu", dtype, requires_grad=False):
            yield FunctionSample((sample.input, *sample.args), dict(sample.kwargs))

    return generate


def list_packets() -> frozenset[str]:
    """Return the names of all ATen operators, such as `aten::add`."""
    names: Sequence[str] = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition(".")[0] for name in names if name.startswith("aten::"))


def list_called_operators(call: Callable[[], Any]) -> tuple[str, ...]:
    """Return the ATen operators that Python calls, such as `aten::add`, each once."""
    with profile() as recorded:
        call()
    events = recorded.function_events or ()
    names = (event.name for event in events if event.cpu_parent is None)
    return tuple(dict.fromkeys(name for name in names if name.startswith("aten::")))


@contextmanager
def shift_seeds() -> Iterator[None]:
    """Replace each seed: torch's tests call random functions with a seed of their own."""
    set_seed = torch.manual_seed
    with replace_attribute(torch, "manual_seed", lambda seed: set_seed(seed + 1)):
        yield


def list_argument_names(function: Callable[..., Any], operator: str, count: int) -> Sequence[str]:
    """Return the names of the first `count` positional arguments."""
    names: list[str] = []
    try:
        parameters = inspect.signature(function).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [each.name for each in parameters if each.kind in positional]
    except (TypeError, ValueError):
        pass
    if len(names) < count:
        # A function in C++ has no signature, but the operator has schemas.
        for schema in torch._C._jit_get_schemas_for_operator(operator):
            arguments = [argument.name for argument in schema.arguments if not argument.is_out]
            if len(arguments) >= count:
                names = arguments
                break
    names += [f"argument {index}" for index in range(len(names) + 1, count + 1)]
    return names[:count]
