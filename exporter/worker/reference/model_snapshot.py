"""A snapshot of everything in a model that an export may change.

A trace can store traced tensors in attributes of the model, and a capture can store fake ones. The
exports of other opsets must not see them, so that each file is the same as if it was exported
alone.
"""

from __future__ import annotations

from typing import Any

import torch

from exporter.worker.model.source_loader import Model
from exporter.worker.reference.eager_run import BufferSnapshot

#: The attributes of every module. Buffers and parameters have their own snapshot or do not change.
_OWN_NAMES = frozenset(vars(torch.nn.Module()))


class ModelSnapshot:
    """The buffers and the plain attributes of a model."""

    def __init__(self, model: Model) -> None:
        self._buffers = BufferSnapshot(model)
        modules = model.modules() if isinstance(model, torch.nn.Module) else ()
        # The attributes of a compiled module are not in Python.
        plain = (each for each in modules if not isinstance(each, torch.jit.ScriptModule))
        self._attributes = [_AttributeTable(vars(module)) for module in plain]

    def restore(self) -> None:
        """Restore every buffer and every attribute."""
        self._buffers.restore()
        for table in self._attributes:
            table.restore()


class _AttributeTable:
    """The attributes of one module: the objects, and the items of lists, dicts and sets."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._values = {name: value for name, value in table.items() if name not in _OWN_NAMES}
        self._items = [
            (value, value.copy())
            for value in self._values.values()
            if type(value) in (list, dict, set)
        ]

    def restore(self) -> None:
        for name in self._table.keys() - self._values.keys() - _OWN_NAMES:
            del self._table[name]
        self._table.update(self._values)
        for value, items in self._items:
            value.clear()
            if isinstance(value, list):
                value.extend(items)
            else:
                value.update(items)
