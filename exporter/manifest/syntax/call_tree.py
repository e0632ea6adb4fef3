"""A call built from values and their places: `args[0]`, `kwargs.past[0].key`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from exporter.manifest.syntax.call_paths import Step, parse_call_path

T = TypeVar("T")
_Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Leaf(Generic[T]):
    """A value, which may be a dict like a container."""

    value: T


_Node = dict[Step, "_Node[T] | _Leaf[T]"]


def assemble_call(
    values: Iterable[tuple[str, T]],
    containers: Mapping[str, str],
    create: Callable[[str, list[T] | dict[Step, T]], T],
) -> tuple[T, T]:
    """Return the positional and the keyword arguments of a call.

    Args:
        values: Each place and its value.
        containers: The type of each declared container, by its place.
        create: Called with a type and the items of a container. The type is "" if it is not
            declared. Items with only positions are a list, unless the type is `dict`.

    Raises:
        ValueError: If a place is inside another value.
    """
    root: _Node[T] = {"args": {}, "kwargs": {}}
    for location, value in values:
        *parents, last = _parse_path(location)
        _find_node(root, tuple(parents))[last] = _Leaf(value)
    types = {_parse_path(location): type for location, type in containers.items()}
    for path in types:
        _find_node(root, path)
    types |= {("args",): "tuple", ("kwargs",): "dict"}

    def collect(node: _Node[T] | _Leaf[T], path: _Path) -> T:
        if isinstance(node, _Leaf):
            return node.value
        items = {step: collect(child, (*path, step)) for step, child in node.items()}
        type = types.get(path, "")
        if type == "dict" or not all(isinstance(step, int) for step in items):
            return create(type, items)
        return create(type, [items[step] for step in sorted(items, key=int)])

    return collect(root["args"], ("args",)), collect(root["kwargs"], ("kwargs",))


def _parse_path(location: str) -> _Path:
    root, steps = parse_call_path(location)
    return (root, *steps)


def _find_node(root: _Node[T], path: _Path) -> _Node[T]:
    """Return the container at a path; create it if it is missing."""
    node = root
    for step in path:
        child = node.setdefault(step, {})
        if isinstance(child, _Leaf):
            raise ValueError(f"{path} is inside another value")
        node = child
    return node
