"""The inputs and outputs of an entry in, each with its dimensions after `dynamic_axes`, out.

`dynamic_axes` says what torch.onnx means by it: a name turns the size in `shape` into the example
of a dynamic axis; a list of indices gets the names that torch.onnx generates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import InputTable, OutputTable
from exporter.manifest.spec.call import Dim
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedShape:
    """An input or an output with the names of its axes."""

    place: KeyPath
    """`("inputs", 0)`."""
    name: str
    dims: tuple[Dim, ...]
    sizes: Mapping[int, int]
    """By dimension: the size in `shape` where `dynamic_axes` gives the dimension a name."""

    @property
    def is_input(self) -> bool:
        """Whether it is an input."""
        return self.place[0] == "inputs"


def resolve_shapes(model: EffectiveSettings) -> tuple[NamedShape, ...]:
    """Every input, then every output."""
    declared: dict[str, NamedShape] = {}
    for place, table in _tables(model.settings):
        if taken := declared.get(table.name):
            owner = format_key(model.key(taken.place))
            model.add_problem(
                (*place, "name"), f"{quote(table.name)} is the name of {owner} already"
            )
        else:
            dims = tuple(table.shape)
            declared[table.name] = NamedShape(place=place, name=table.name, dims=dims, sizes={})
    if model.has("dynamic_axes"):
        for name, axes in model.settings.dynamic_axes.items():
            if name in declared:
                declared[name] = _renamed(model, declared[name], axes)
            else:
                hint = suggest_nearest(name, declared)
                model.add_problem(("dynamic_axes", name), f"no input or output has this name{hint}")
    return tuple(declared.values())


def resolve_dtype(settings: Settings, table: InputTable | OutputTable) -> str:
    """The dtype that a table names; of one that names none, that of the model's precision."""
    return table.dtype or settings.precision or "float32"


def _tables(settings: Settings) -> Iterator[tuple[KeyPath, InputTable | OutputTable]]:
    for index, given in enumerate(settings.inputs):
        yield ("inputs", index), given
    for index, returned in enumerate(settings.outputs):
        yield ("outputs", index), returned


def _renamed(
    model: EffectiveSettings, shape: NamedShape, axes: tuple[int, ...] | dict[int, str]
) -> NamedShape:
    dims, sizes = list(shape.dims), dict(shape.sizes)
    for path, index, name in _named(shape.name, axes):
        if index >= len(dims):
            model.add_problem(path, _no_dimension(shape, index))
            continue
        present = dims[index]
        if isinstance(present, int):
            dims[index], sizes[index] = name, present
        elif index in sizes:
            model.add_problem(path, f"dimension {index} is listed twice")
        elif present != name and isinstance(axes, dict):
            place = format_key(model.key((*shape.place, "shape", index)))
            model.add_problem(
                path, f"calls the axis {quote(name)}; {place} calls it {quote(present)}"
            )
    return NamedShape(place=shape.place, name=shape.name, dims=tuple(dims), sizes=sizes)


def _named(
    tensor: str, axes: tuple[int, ...] | dict[int, str]
) -> Iterator[tuple[KeyPath, int, str]]:
    """Path, dimension and name of each item."""
    if isinstance(axes, dict):
        for index, name in axes.items():
            yield ("dynamic_axes", tensor, str(index)), index, name
    else:
        for position, index in enumerate(axes):
            # torch.onnx counts the position in the list, not the dimension.
            yield ("dynamic_axes", tensor, position), index, f"{tensor}_dynamic_axes_{position + 1}"


def _no_dimension(shape: NamedShape, index: int) -> str:
    rank = len(shape.dims)
    extent = f"has the dimensions 0 to {rank - 1}" if rank else "is a scalar"
    return f"{quote(shape.name)} {extent}; there is no dimension {index}"
