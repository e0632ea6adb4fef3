"""Modes in which a function computes each operator, or each function of torch, of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from exporter.worker.torch_private.internals import TorchDispatchMode


class FunctionMode(TorchFunctionMode):
    """A mode in which `run` calls each function of torch."""

    def __init__(self, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._run = run

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._run(func, args, kwargs or {})


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
