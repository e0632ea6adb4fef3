"""A large model in float64: a copy with its weights in a file, or operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exporter.worker.model.mapped_weights import copy_in_float64
from exporter.worker.model.model_kinds import is_compiled
from exporter.worker.reference.operator_calls import FunctionMode, create_mode
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
#: Operators that copy elements of a tensor without computing.
_LOOKUPS = frozenset(
    {"aten::embedding", "aten::index", "aten::index_select", "aten::gather", "aten::take"}
)
_CONVOLUTIONS = frozenset(
    getattr(torch, f"conv{kind}{rank}d") for kind in ("", "_transpose") for rank in (1, 2, 3)
)
_Duplicate = Callable[[torch.nn.Module], torch.nn.Module]


def build_model(
    model: torch.nn.Module, copy: Callable[[torch.nn.Module, _Duplicate], torch.nn.Module]
) -> torch.nn.Module:
    """Return a copy with its weights in a file, or a wrapper that casts them one by one.

    `copy`: Returns a copy in float64, by a function that duplicates a module.
    """
    if any(map(is_compiled, model.modules())):
        return Float64Wrapper(model)  # its copy is made by C++, in memory
    try:
        return copy(model, copy_in_float64)
    except Exception:  # the disk is full, or a model raises any error in a copy
        return Float64Wrapper(model)


def describe_run(float64_model: object) -> str:
    """Return how a large model runs in float64."""
    if isinstance(float64_model, Float64Wrapper):
        return "operator by operator, because no copy of its weights is possible"
    return "as a copy, with its weights in a temporary file" if float64_model else ""


class Float64Wrapper(torch.nn.Module):
    """A module that runs a model in float64 without a copy of its weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # a tuple, because an attribute would be a submodule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with compute_in_float64():
            return self._model[0](*args, **kwargs)


@contextmanager
def compute_in_float64() -> Iterator[None]:
    """Let every operator inside compute in float64; the weights keep their dtype.

    Each weight is cast for one operator and the copy is freed after it, so there is never a
    second copy of all weights. Views and lookups are exact without a cast. Layers that compare
    the dtypes of inputs and weights (`LSTM`) raise an error.
    """
    with create_mode(_run_in_float64), FunctionMode(_widen_convolutions):
        yield


def _widen_convolutions(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Cast the arguments of convolutions, which compare dtypes before they call an operator."""
    if func in _CONVOLUTIONS:
        args, kwargs = internals.tree_map(_widen, (args, kwargs))
    return func(*args, **kwargs)


def _run_in_float64(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    schema = read_schema(func)
    aliases = [returned.alias_info for returned in schema.returns]
    is_view = any(alias is not None and not alias.is_write for alias in aliases)
    if is_view or str(schema.name) in _LOOKUPS:
        return func(*args, **kwargs)
    written = [
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in schema.arguments
    ]
    wide = tuple(
        arg if is_written else internals.tree_map(_widen, arg)
        for arg, is_written in zip(args, written, strict=False)
    )
    return func(*wide, **internals.tree_map(_widen, kwargs))


def _widen(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.dtype in _NARROW
    return value.double() if is_narrow else value
