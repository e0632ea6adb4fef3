"""What operators are given while a model runs, seen and changed from below it.

In: a run of a model inside one of the contexts. Out: `operands`, the memory that it read;
`float64_operands`, a run in float64 of a model that stays as it is.

torch documents the class that this is built on, and keeps it in a module with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Change = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@contextmanager
def operands() -> Iterator[set[int]]:
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


def _mode(change: Change) -> Any:
    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            args, kwargs = change(func, args, kwargs or {})
            return func(*args, **kwargs)

    make: Callable[[], Any] = Mode
    return make()
