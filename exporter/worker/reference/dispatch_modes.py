"""What operators are given while a model runs, seen and changed from below it.

In: a run of a model inside one of the contexts. Out: `record_storages`, the memory that it read;
`compute_in_float64`, a run in float64 of a model that stays as it is.

torch documents the class that this is built on, and keeps it in a module with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from exporter.worker.torch_private import pytree
from exporter.worker.torch_private.tensor_internals import TorchDispatchMode, read_schema

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
#: What takes elements of a tensor as they are.
_LOOKUPS = frozenset(
    {"aten::embedding", "aten::index", "aten::index_select", "aten::gather", "aten::take"}
)
_CONVOLUTIONS = frozenset(
    getattr(torch, f"conv{kind}{rank}d") for kind in ("", "_transpose") for rank in (1, 2, 3)
)
Change = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@contextmanager
def record_storages() -> Iterator[set[int]]:
    """The addresses of the storages that operators are given inside."""
    places: set[int] = set()

    def note(
        _func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                places.add(leaf.untyped_storage().data_ptr())
        return args, kwargs

    with _mode(note):
        yield places


@contextmanager
def compute_in_float64() -> Iterator[None]:
    """Every operator inside computes in float64, of weights that stay as they are.

    Each is cast where it is used and forgotten after that: at no time is there a second copy of
    all of them. What only views or looks up is exact as it is. Layers that hold the dtypes of their
    inputs and weights against each other (`LSTM`) refuse to run so.
    """
    with _mode(_widen), _Convolutions():
        yield


class _Convolutions(TorchFunctionMode):
    """Convolutions compare dtypes before they get to an operator."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _CONVOLUTIONS:
            args, kwargs = pytree.tree_map(_widened, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _widen(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    schema = read_schema(func)
    if str(schema.name) in _LOOKUPS or any(_is_view(each) for each in schema.returns):
        return args, kwargs
    written = [
        each.alias_info is not None and each.alias_info.is_write for each in schema.arguments
    ]
    wide = tuple(
        arg if is_written else pytree.tree_map(_widened, arg)
        for arg, is_written in zip(args, written, strict=False)
    )
    return wide, pytree.tree_map(_widened, kwargs)


def _is_view(returned: Any) -> bool:
    return returned.alias_info is not None and not returned.alias_info.is_write


def _widened(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.dtype in _NARROW
    return value.double() if is_narrow else value


def _mode(change: Change) -> Any:
    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            args, kwargs = change(func, args, kwargs or {})
            return func(*args, **kwargs)

    make: Callable[[], Any] = Mode
    return make()
