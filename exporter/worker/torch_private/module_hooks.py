"""Hooks of modules, which TorchScript's exporter adds and does not remove.

With `export_modules_as_functions`, each export adds two hooks to every module, which record its
attributes. If an earlier export added them too, the next one fails with an internal assertion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_NAMES = ("_forward_pre_hooks", "_forward_hooks")


@contextmanager
def restore_module_hooks(model: object) -> Iterator[None]:
    """Remove the hooks that the modules of a model get inside the context."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    tables: list[dict[int, Any]] = [
        table
        for module in modules
        for name in _NAMES
        if isinstance(table := vars(module).get(name), dict)
    ]
    before = [set(table) for table in tables]
    try:
        yield
    finally:
        for table, keys in zip(tables, before, strict=True):
            for key in [key for key in table if key not in keys]:
                del table[key]
