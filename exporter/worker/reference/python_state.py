"""The Python values around a model that a call may change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

from exporter.worker.model.source_loader import Model
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.torch_private.internals import count_writes

#: Packages whose classes and modules do not keep values of one model.
_LIBRARIES = frozenset({"torch", "builtins", "numpy"})


class PythonState:
    """The plain attributes of a model's modules, and the values of their classes and files.

    A changed value is often a table that does not depend on the input. So the caller has to
    compare outputs.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # References to the values prevent that a new object gets the identity of an old one.
        self._values = dict(_list_values(model))
        self._marks = {name: _mark_value(value) for name, value in self._values.items()}

    def list_changes(self) -> tuple[str, ...]:
        """Return the names of the values that were set, removed or mutated since then."""
        current = dict(_list_values(self._model))
        names = dict.fromkeys((*self._values, *current))
        return tuple(
            name
            for name in names
            if name not in current or self._marks.get(name) != _mark_value(current[name])
        )


def _list_values(model: Model) -> Iterator[tuple[str, Any]]:
    """Yield each value with its name in a message."""
    if not isinstance(model, torch.nn.Module):
        return
    classes: dict[type, None] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(module).items():
            if not name.startswith("_"):  # torch's own: parameters, buffers, modules and hooks
                yield f"the attribute '{prefix}{name}'", value
        classes.update(dict.fromkeys(type(module).__mro__))
    project_classes = [
        each for each in classes if each.__module__.partition(".")[0] not in _LIBRARIES
    ]
    for each in project_classes:
        for name, value in vars(each).items():
            if not name.startswith("__"):
                yield f"the class attribute '{each.__qualname__}.{name}'", value
    for file in dict.fromkeys(each.__module__ for each in project_classes):
        for name, value in vars(sys.modules.get(file, ModuleType(file))).items():
            if not name.startswith("__") and not isinstance(value, ModuleType | type):
                yield f"the global variable '{name}' of {file}", value


def _mark_value(value: Any) -> tuple[Any, ...]:
    """Return a key that changes when the value is replaced or mutated."""
    if isinstance(value, torch.Tensor):
        return (id(value), count_writes(value))
    if isinstance(value, dict):
        return (id(value), *(id(item) for pair in value.items() for item in pair))
    if isinstance(value, list | set | tuple):
        return (id(value), *(id(item) for item in value))
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _has_content(cell)]
        return (id(value), *(_mark_value(item) for item in cells if not callable(item)))
    if hasattr(type(value), "cache_info"):  # a function with `functools.cache`
        return (id(value), value.cache_info().currsize)
    return (id(value),)


def _has_content(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an empty cell
        return False


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
