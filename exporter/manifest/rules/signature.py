"""Resolve the inputs and outputs of an entry: dimensions, copies, places in the call.

`dynamic_axes` has the meaning that torch.onnx gives it. A name turns the size in `shape` into the
example of a dynamic axis. A list of indices gets the names that torch.onnx generates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Dim
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import (
    InputTable,
    OutputTable,
)
from exporter.manifest.syntax.values import (
    KeyPath,
    find_next_position,
    format_key,
    parse_call_path,
    quote,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedShape:
    """An input or an output with the names of its axes."""

    path: KeyPath
    """`("inputs", 0)`."""
    name: str
    dims: tuple[Dim, ...]
    sizes: Mapping[int, int]
    """The size in `shape` of each dimension that `dynamic_axes` names."""

    @property
    def is_input(self) -> bool:
        return self.path[0] == "inputs"


def resolve_shapes(entry: EffectiveSettings) -> tuple[NamedShape, ...]:
    tables: list[tuple[KeyPath, InputTable | OutputTable]] = []
    tables += [(("inputs", index), each) for index, each in enumerate(entry.settings.inputs)]
    tables += [(("outputs", index), each) for index, each in enumerate(entry.settings.outputs)]
    shapes: dict[str, NamedShape] = {}
    for key_path, table in tables:
        if owner := shapes.get(table.name):
            name = format_key(entry.find_source_path(owner.path))
            message = f"{quote(table.name)} is already the name of {name}; choose another one"
            entry.add_problem((*key_path, "name"), message)
        else:
            dims = tuple(table.shape)
            shapes[table.name] = NamedShape(path=key_path, name=table.name, dims=dims, sizes={})
    if entry.has_valid("dynamic_axes"):
        for name, axes in entry.settings.dynamic_axes.items():
            if name in shapes:
                shapes[name] = _apply_dynamic_axes(entry, shapes[name], axes)
            else:
                hint = suggest_name(name, shapes)
                message = f"no input or output has this name{hint}"
                entry.add_problem(("dynamic_axes", name), message)
    return tuple(shapes.values())


def resolve_dtype(settings: Settings, table: InputTable | OutputTable) -> str:
    """Return the dtype of a table; without one, the dtype of the model's precision."""
    return table.dtype or settings.precision or "float32"


def _apply_dynamic_axes(
    entry: EffectiveSettings, shape: NamedShape, axes: tuple[int, ...] | dict[int, str]
) -> NamedShape:
    key: KeyPath = ("dynamic_axes", shape.name)
    if isinstance(axes, dict):
        items = [((*key, str(index)), index, name) for index, name in axes.items()]
    else:
        # torch.onnx counts the position in the list, not the dimension.
        items = [
            ((*key, position), index, f"{shape.name}_dynamic_axes_{position + 1}")
            for position, index in enumerate(axes)
        ]
    dims, sizes = list(shape.dims), dict(shape.sizes)
    for key_path, index, name in items:
        if index >= len(dims):
            extent = f"has the dimensions 0 to {len(dims) - 1}" if dims else "is a scalar"
            message = f"{quote(shape.name)} {extent}, so there is no dimension {index}"
            entry.add_problem(key_path, message)
            continue
        current = dims[index]
        if isinstance(current, int):
            dims[index], sizes[index] = name, current
        elif index in sizes:
            entry.add_problem(key_path, f"dimension {index} is listed twice")
        elif current != name and isinstance(axes, dict):
            other = format_key(entry.find_source_path((*shape.path, "shape", index)))
            message = f"names the axis {quote(name)}, but {other} names it {quote(current)}"
            entry.add_problem(key_path, message)
    return NamedShape(path=shape.path, name=shape.name, dims=tuple(dims), sizes=sizes)


def list_call_paths(entry: EffectiveSettings) -> tuple[str, ...]:
    """Return the path of each input; without `at`, the next free position of `args`.

    Returns:
        Empty paths if a function creates the call.
    """
    if entry.settings.inputs_from:
        return tuple("" for _ in entry.settings.inputs)
    reserved = frozenset(
        step
        for path in (*list_paths(entry, "constants"), *list_paths(entry, "containers"))
        if isinstance(step := parse_call_path(path)[1][0], int)
    )
    paths: list[str] = []
    last = -1
    for table in entry.settings.inputs:
        path = table.at or f"args[{find_next_position(last, reserved)}]"
        paths.append(path)
        root, steps = parse_call_path(path)
        if root == "args":
            last = max(last, int(steps[0]))
    return tuple(paths)


def list_paths(entry: EffectiveSettings, key: str) -> list[str]:
    return [table.at for table in getattr(entry.settings, key)] if entry.has_valid(key) else []
