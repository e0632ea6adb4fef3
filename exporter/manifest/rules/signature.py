"""Resolve the inputs and outputs of an entry with their dimensions after `dynamic_axes`.

`dynamic_axes` has the meaning that torch.onnx gives it. A name turns the size in `shape` into the
example of a dynamic axis. A list of indices gets the names that torch.onnx generates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.errors import suggest_name
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.call import Dim
from exporter.manifest.rules.exporters import list_exporters
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import InputTable, OutputTable
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote
from exporter.manifest.syntax.opsets import format_opsets

_NUMBER_DTYPES = ("int64", "float32", "float64", "bool")
#: ONNX can test the presence of an optional value from this opset.
_FIRST_OPTIONAL_OPSET = 15
_OPTIONAL_FIX = (
    "write another entry that `extends` this one, without the input and with "
    "constants = [{ at = …, none = true }]"
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
        """Whether it is an input."""
        return self.path[0] == "inputs"


def resolve_shapes(model: EffectiveSettings) -> tuple[NamedShape, ...]:
    """Return every input, then every output."""
    tables: list[tuple[KeyPath, InputTable | OutputTable]] = []
    tables += [(("inputs", index), each) for index, each in enumerate(model.settings.inputs)]
    tables += [(("outputs", index), each) for index, each in enumerate(model.settings.outputs)]
    shapes: dict[str, NamedShape] = {}
    for path, table in tables:
        if owner := shapes.get(table.name):
            name = format_key(model.find_source_path(owner.path))
            message = f"{quote(table.name)} is already the name of {name}; choose another one"
            model.add_problem((*path, "name"), message)
        else:
            dims = tuple(table.shape)
            shapes[table.name] = NamedShape(path=path, name=table.name, dims=dims, sizes={})
    if model.has_valid("dynamic_axes"):
        for name, axes in model.settings.dynamic_axes.items():
            if name in shapes:
                shapes[name] = _apply_dynamic_axes(model, shapes[name], axes)
            else:
                hint = suggest_name(name, shapes)
                message = f"no input or output has this name{hint}"
                model.add_problem(("dynamic_axes", name), message)
    return tuple(shapes.values())


def resolve_dtype(settings: Settings, table: InputTable | OutputTable) -> str:
    """Return the dtype of a table; without one, the dtype of the model's precision."""
    return table.dtype or settings.precision or "float32"


def check_inputs(model: EffectiveSettings) -> None:
    """Report invalid Python numbers, and optional inputs that the file cannot have."""
    for index, table in enumerate(model.settings.inputs):
        if table.scalar:
            _check_scalar(model, ("inputs", index), table)
        if table.optional and model.has_valid("exporter", "capture", "opsets"):
            _check_optional(model, ("inputs", index, "optional"))


def _apply_dynamic_axes(
    model: EffectiveSettings, shape: NamedShape, axes: tuple[int, ...] | dict[int, str]
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
    for path, index, name in items:
        if index >= len(dims):
            extent = f"has the dimensions 0 to {len(dims) - 1}" if dims else "is a scalar"
            message = f"{quote(shape.name)} {extent}, so there is no dimension {index}"
            model.add_problem(path, message)
            continue
        current = dims[index]
        if isinstance(current, int):
            dims[index], sizes[index] = name, current
        elif index in sizes:
            model.add_problem(path, f"dimension {index} is listed twice")
        elif current != name and isinstance(axes, dict):
            other = format_key(model.find_source_path((*shape.path, "shape", index)))
            message = f"names the axis {quote(name)}, but {other} names it {quote(current)}"
            model.add_problem(path, message)
    return NamedShape(path=shape.path, name=shape.name, dims=tuple(dims), sizes=sizes)


def _check_scalar(model: EffectiveSettings, path: KeyPath, table: InputTable) -> None:
    if table.shape:
        message = "a Python number has the shape [] in the file; write shape = []"
        model.add_problem((*path, "shape"), message)
    dtype = resolve_dtype(model.settings, table)
    if dtype not in _NUMBER_DTYPES:
        message = f"a Python number is int64, float32, float64 or bool, not {dtype}"
        model.add_problem((*path, "dtype"), message)
    elif dtype == "float32" and model.settings.capture == "script":
        message = "a float of a scripted model is float64 in the file; write float64"
        model.add_problem((*path, "dtype"), message)
    if table.optional:
        message = "a Python number cannot be optional; remove `scalar` or `optional`"
        model.add_problem((*path, "optional"), message)


def _check_optional(model: EffectiveSettings, path: KeyPath) -> None:
    if model.settings.capture != "script":
        exporters = list_exporters(model.settings)
        exporter = "a trace" if exporters == {"torchscript"} else "dynamo"
        exporter = "dynamo or a trace" if len(exporters) > 1 else exporter
        message = f'{exporter} cannot write optional inputs, only capture = "script" can'
        model.add_problem(path, f"{message}; {_OPTIONAL_FIX}")
        return
    early = [opset for opset in model.settings.opsets if opset < _FIRST_OPTIONAL_OPSET]
    if early:
        message = f"ONNX has optional inputs from opset {_FIRST_OPTIONAL_OPSET}"
        model.add_problem(path, f"{message}, not at {format_opsets(early)}; {_OPTIONAL_FIX}")
