"""The Python values that a model can reach and that a call may change."""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import torch

from exporter.worker.model.model_kinds import Model
from exporter.worker.torch_private.internals import count_writes

#: Packages whose classes and modules do not keep values of one model.
_LIBRARIES = frozenset({"torch", "builtins", "numpy", "exporter"})
#: Modules of Python whose classes have the attributes that a user gives them.
_NAMESPACES = frozenset({"types", "argparse", "collections"})
#: The attributes of every module. Buffers and parameters have their own snapshot or do not change.
OWN_NAMES = frozenset(vars(torch.nn.Module())) - {"training"}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
#: Objects inside of objects, and items of a collection, that are looked at.
_DEPTH, _MOST_ITEMS = 3, 64


#: The end of a path, a value, and a function that keeps another one there.
_Child: TypeAlias = tuple[str, Any, Callable[[Any], object]]


@dataclass(frozen=True, slots=True)
class PythonValue:
    """A value, and where it is kept."""

    name: str
    """`the attribute 'layer.count'`."""
    value: Any
    write: Callable[[Any], object]
    """Keep another value there."""


def list_values(model: Model) -> Iterator[PythonValue]:
    """Yield the plain attributes of all modules and hooks, and the values of classes and files.

    Objects and collections are followed by their attributes and items.
    """
    seen = set[int]()
    classes: dict[type, None] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        table = vars(module)
        for name, value in list(table.items()):
            if name not in OWN_NAMES:
                write = partial(table.__setitem__, name)
                yield from _follow("the attribute '{}'", f"{prefix}{name}", value, write, seen)
        for name in _HOOKS:
            for hook in list(table.get(name, {}).values()):
                yield from _list_inner_values("the variable '{}' of a hook", "", hook, seen, _DEPTH)
        classes.update(dict.fromkeys(type(module).__mro__))
    project_classes = [
        each for each in classes if each.__module__.partition(".")[0] not in _LIBRARIES
    ]
    for each in project_classes:
        for name, value in list(vars(each).items()):
            if not name.startswith("__"):
                path, write = f"{each.__qualname__}.{name}", partial(setattr, each, name)
                yield from _follow("the class attribute '{}'", path, value, write, seen)
    for file in dict.fromkeys(each.__module__ for each in project_classes):
        table = vars(sys.modules.get(file, ModuleType(file)))
        for name, value in list(table.items()):
            if not name.startswith("__") and not isinstance(value, ModuleType | type):
                label = f"the global variable '{{}}' of {file}"
                yield from _follow(label, name, value, partial(table.__setitem__, name), seen)


def _follow(
    label: str, path: str, value: Any, write: Callable[[Any], object], seen: set[int]
) -> Iterator[PythonValue]:
    if not _is_table_of_python(value):
        yield PythonValue(label.format(path), value, write)
        yield from _list_inner_values(label, path, value, seen, _DEPTH)


def _list_inner_values(
    label: str, path: str, value: Any, seen: set[int], depth: int
) -> Iterator[PythonValue]:
    """Yield the values inside of a value, each with its path."""
    if id(value) in seen or depth < 0:
        return
    children = list[_Child]()
    with suppress(Exception):  # the access to an attribute may run code of the user
        children.extend(islice(_list_children(value), _MOST_ITEMS))
    if children:
        seen.add(id(value))
    for suffix, child, write in children:
        if _is_table_of_python(child):
            continue
        inner = f"{path}{suffix}".removeprefix(".")
        yield PythonValue(label.format(inner), child, write)
        yield from _list_inner_values(label, inner, child, seen, depth - 1)


def _list_children(value: Any) -> Iterator[_Child]:
    if isinstance(value, dict):
        for index, (key, item) in enumerate(list(value.items())):
            name = f'"{key}"' if isinstance(key, str) else key if isinstance(key, int) else index
            yield f"[{name}]", item, partial(value.__setitem__, key)
    elif isinstance(value, list | deque):
        for index, item in enumerate(list(value)):
            yield f"[{index}]", item, partial(value.__setitem__, index)
    elif isinstance(value, MethodType):
        yield from _list_children(value.__func__)
        yield from _list_children(value.__self__)
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            if has_content(cell):
                yield f".{name}", cell.cell_contents, partial(setattr, cell, "cell_contents")
    elif _has_own_attributes(value):
        names = dict.fromkeys((*getattr(value, "__dict__", {}), *_list_slots(type(value))))
        for name in names:
            if hasattr(value, name):
                yield f".{name}", getattr(value, name), partial(setattr, value, name)


def _list_slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _is_table_of_python(value: Any) -> bool:
    """Return whether Python needs a value to run: the modules, or the builtins of a namespace."""
    return value is sys.modules or value is vars(builtins)


def _has_own_attributes(value: Any) -> bool:
    """Return whether a value is an object of a class of the user, or a namespace."""
    if isinstance(value, torch.nn.Module | torch.Tensor | type | ModuleType):
        return False
    package = type(value).__module__.partition(".")[0]
    is_python = package in sys.stdlib_module_names and package not in _NAMESPACES
    return package not in _LIBRARIES and not is_python


def has_content(cell: CellType) -> bool:
    """Return whether the variable of a closure has a value that is not None."""
    try:
        return cell.cell_contents is not None
    except ValueError:  # an empty cell
        return False


def mark_value(value: Any) -> tuple[Any, ...]:
    """Return a key that changes when the value is replaced or mutated."""
    if isinstance(value, torch.Tensor):
        return (id(value), count_writes(value))
    if type(value) in (bool, int, float, str):
        return (type(value), value)
    if isinstance(value, dict):
        return (id(value), *(id(item) for pair in value.items() for item in pair))
    if isinstance(value, list | set | tuple | deque):
        return (id(value), *(id(item) for item in value))
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if has_content(cell)]
        return (id(value), *(mark_value(item) for item in cells if not callable(item)))
    if hasattr(type(value), "cache_info"):  # a function with `functools.cache`
        return (id(value), value.cache_info().currsize)
    if type(value).__module__ == "itertools" and type(value).__name__ == "count":
        return (id(value), repr(value))
    return (id(value),)
