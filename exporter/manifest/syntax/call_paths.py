"""Read and write paths in the model's call: `args[0]`, `kwargs.mask`, `kwargs.past[0].key`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

#: An index of a tuple or list, or a key of a dict; the first key below `kwargs` is the keyword.
Step = int | str

_ROOT = re.compile(r"(args(?=\[)|kwargs(?=\.))")
_STEP = re.compile(r"\[(0|[1-9][0-9]{0,3})\]|\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def parse_call_path(text: str) -> tuple[str, tuple[Step, ...]]:
    """Split `kwargs.past[0].key` into `("kwargs", ("past", 0, "key"))`.

    Raises:
        ValueError: If the text is not such a path.
    """
    root = _ROOT.match(text)
    steps: list[Step] = []
    end = root.end() if root else 0
    while root and end < len(text):
        step = _STEP.match(text, end)
        if step is None:
            break
        steps.append(int(step[1]) if step[1] is not None else step[2])
        end = step.end()
    if root is None or end < len(text):
        raise ValueError('expected a path such as "args[0]", "kwargs.mask" or "args[1][0]"')
    return root[1], tuple(steps)


def is_positional_call(paths: Iterable[str], *, others: bool) -> bool:
    """Return whether all values are positional tensors, as a tracer requires.

    `others` are constants, numbers and containers with a type.
    """
    return not others and all(parse_call_path(path)[0] == "args" for path in paths)


def format_call_path(root: str, steps: Iterable[Step]) -> str:
    """Return the text that `parse_call_path` reads."""
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def find_next_position(used: Iterable[tuple[Step, ...]], reserved: frozenset[int]) -> int:
    """Return the position after the last one in `used` that is not `reserved`."""
    position = 1 + max((path[0] for path in used if isinstance(path[0], int)), default=-1)
    while position in reserved:
        position += 1
    return position


def find_conflicts(values: Sequence[tuple[str, str]]) -> Mapping[int, str]:
    """Return a message for the index of each path and name that does not fit into one call.

    A missing position is reported for the value after it.
    """
    problems: dict[int, str] = {}
    owners: dict[tuple[Step, ...], int] = {}
    containers: dict[tuple[Step, ...], dict[Step, int]] = {}
    for index, (text, _) in enumerate(values):
        root, steps = parse_call_path(text)
        path = (root, *steps)
        prefixes = [path[:end] for end in range(2, len(path) + 1)]
        owner = next((owners[prefix] for prefix in prefixes if prefix in owners), None)
        if owner is None and path in containers:
            owner = min(containers[path].values())
        if owner is not None:
            problems[index] = f"'{text}' is already used by {values[owner][1]}"
            continue
        owners[path] = index
        for end in range(1, len(path)):
            containers.setdefault(path[:end], {}).setdefault(path[end], index)
    for container, children in containers.items():
        if container != ("kwargs",):
            problems = {**_find_child_problem(container, children), **problems}
    return problems


def _find_child_problem(
    container: tuple[Step, ...], children: Mapping[Step, int]
) -> dict[int, str]:
    """Return a problem if positions and keys are mixed or a position is missing."""
    name = format_call_path("", container)[1:]
    positions = sorted(step for step in children if isinstance(step, int))
    if len(positions) < len(children) and positions:
        return {max(children.values()): f"'{name}' cannot have both positions and keys"}
    for expected, position in enumerate(positions):
        if position != expected:
            return {children[position]: f"'{name}[{expected}]' is missing before this position"}
    return {}


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

    `create` is called with a type and the items of a container. The type is "" if it is not
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
