"""The operators that run inside of a call: their names, arguments and lines, or in float64."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import TorchDispatchMode, read_schema

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
#: Operators that copy elements of a tensor without computing.
_LOOKUPS = frozenset(
    {"aten::embedding", "aten::index", "aten::index_select", "aten::gather", "aten::take"}
)
_CONVOLUTIONS = frozenset(
    getattr(torch, f"conv{kind}{rank}d") for kind in ("", "_transpose") for rank in (1, 2, 3)
)


@contextmanager
def compute_in_float64() -> Iterator[None]:
    """Let every operator inside compute in float64; the weights keep their dtype.

    Each weight is cast for one operator and the copy is freed after it, so there is never a
    second copy of all weights. Views and lookups are exact without a cast. Layers that compare
    the dtypes of inputs and weights (`LSTM`) raise an error.
    """
    with create_mode(_run_in_float64), FunctionMode(_widen_convolutions):
        yield


class FunctionMode(TorchFunctionMode):
    """A mode in which `run` calls each function of torch."""

    def __init__(self, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._run = run

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._run(func, args, kwargs or {})


def _widen_convolutions(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Cast the arguments of convolutions, which compare dtypes before they call an operator."""
    if func in _CONVOLUTIONS:
        args, kwargs = internals.tree_map(_widen, (args, kwargs))
    return func(*args, **kwargs)


def create_mode(run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """Return a mode in which `run` computes each operator, from its arguments by position and name.

    The mode is off inside `run`.
    """

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            return run(func, args, kwargs or {})

    create: Callable[[], Any] = Mode
    return create()


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


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """The arguments of one call of an operator."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class OperatorLog:
    """The operators of one run."""

    failing: OperatorCall | None = None
    """The call that raised the exception, if an operator did."""
    lines: dict[int, str] = field(default_factory=dict)
    """The model's line by the identity of a result. A new result replaces a freed one."""


@contextmanager
def log_operators() -> Iterator[OperatorLog]:
    log = OperatorLog()

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log.failing = OperatorCall(args, kwargs)
        returned = func(*args, **kwargs)
        log.failing = None
        # The working folder of a worker is the root of the project.
        line = find_frame_line(traceback.walk_stack(None), Path())
        for leaf in internals.tree_leaves(returned):
            log.lines[id(leaf)] = line
        return returned

    with create_mode(record):
        yield log
