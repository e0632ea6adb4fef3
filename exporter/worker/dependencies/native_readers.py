"""Libraries that open files without Python, made to say so as Python does.

In: nothing. Out: the readers below raise the audit event `open` before they read, which
`opened.py` hears: weights that the model's own code loads are a part of what it was made from.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

#: Module and function; the first argument of each is the file.
_READERS = (
    ("safetensors", "safe_open"),
    # These two bind it when they are imported; `load_file` of both goes by it.
    ("safetensors.torch", "safe_open"),
    ("safetensors.numpy", "safe_open"),
    ("torch", "from_file"),
    ("torch.export", "load"),
    ("torch.jit", "load"),
)


@functools.cache
def announce_reads() -> None:
    """Puts each reader behind one that announces it, once and for good.

    Call it before the model's code is imported, which may take a reader by name.
    """
    for name, reader in _READERS:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            setattr(module, reader, _announced(getattr(module, reader)))


def _announced(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def announced(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            sys.audit("open", os.fspath(file), "r", os.O_RDONLY)
        return reader(file, *args, **kwargs)

    return announced
