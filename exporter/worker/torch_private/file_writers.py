"""The writers of files in the native code of PyTorch and safetensors, which no audit hook sees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch


@contextmanager
def check_native_writers(refuse: Callable[[object], None]) -> Iterator[None]:
    """Call `refuse` with the path that a writer in native code gets, while the block runs."""
    places: list[tuple[Any, str, int]] = [
        (torch._C, "PyTorchFileWriter", 0),
        (torch._C.ScriptModule, "save", 1),
    ]
    with suppress(ImportError):
        import safetensors.numpy
        import safetensors.torch

        modules = (safetensors, safetensors.numpy, safetensors.torch)
        places += [(each, "serialize_file", 1) for each in modules]
    with ExitStack() as stack:
        for owner, name, position in places:
            if function := getattr(owner, name, None):  # other releases may lack it
                setattr(owner, name, _check_argument(function, position, refuse))
                stack.callback(setattr, owner, name, function)
        yield


def _check_argument(
    function: Callable[..., Any], position: int, refuse: Callable[[object], None]
) -> Callable[..., Any]:
    """Return the function with a check of its path, which is a positional argument."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        refuse(args[position] if len(args) > position else kwargs.get("filename"))
        return function(*args, **kwargs)

    return call
