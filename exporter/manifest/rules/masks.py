"""Check masks, lengths and pictures: the fills of inputs, and `masked_by` of outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exporter.core.errors import suggest_name
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.call import Dim
from exporter.manifest.rules.signature import NamedShape
from exporter.manifest.schema.tables import FillTable
from exporter.manifest.syntax.message_format import KeyPath, quote

_FIX = "use an input with axes of the output, each once, and the size 1 elsewhere"


def check_masks(model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    """Report masks, lengths and pictures that do not fit the shapes of the inputs and outputs."""
    inputs = {shape.name: shape for shape in shapes.values() if shape.is_input}
    _check_fills(model, shapes)
    for index, table in enumerate(model.settings.outputs):
        name, path = table.masked_by, ("outputs", index, "masked_by")
        if name is None or ("outputs", index) not in shapes:
            continue
        if name not in inputs:
            model.add_problem(path, f"no input has this name{suggest_name(name, inputs)}")
        elif table.kind == "sequence":
            message = "a list of tensors has no common positions; remove `masked_by` or `kind`"
            model.add_problem(path, message)
        elif problem := _find_problem(inputs[name].dims, shapes["outputs", index].dims):
            mask = f"the mask {quote(name)} {_format_dims(inputs[name].dims)}"
            message = f"{mask} does not fit the output: {problem}; {_FIX}"
            model.add_problem(path, message)


def _check_fills(model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    dims = (dim for shape in shapes.values() if shape.is_input for dim in shape.dims)
    axes = [dim for dim in dims if isinstance(dim, str)]
    for path, name, fill in _list_fill_tables(model):
        ends = {"lengths_of": fill.lengths_of, "randint": (fill.randint or (0, 0))[-1]}
        for key, axis in ends.items():
            if isinstance(axis, str) and axis not in axes:
                message = f"no input has this axis{suggest_name(axis, axes)}"
                model.add_problem((*path, key), message)
        if fill.image:
            shape = next(shape for shape in shapes.values() if shape.name == name)
            if problem := _find_image_problem(shape.dims, 3 if fill.mode in (None, "RGB") else 1):
                model.add_problem((*path, "image"), problem)
        for key in ("mask", "padding"):
            if getattr(fill, key) and () in [s.dims for s in shapes.values() if s.name == name]:
                message = "a scalar has no rows; add the axis of the sequence to `shape`"
                model.add_problem((*path, key), message)


def _find_image_problem(dims: tuple[Dim, ...], channels: int) -> str:
    """Return why a picture does not fit an input, or ""."""
    form = '["batch", 3, "height", "width"]' if channels == 3 else '["batch", 1, "height", "width"]'
    if len(dims) < (3 if channels == 3 else 2):
        return f"a picture does not fit the shape {_format_dims(dims)}; use, for example, {form}"
    if len(dims) > 2 and dims[-3] != channels:
        modes = 'mode "L" or "Y" has one channel' if channels == 1 else 'mode "RGB" has 3 channels'
        return f"{modes}, not {dims[-3]}; use, for example, the shape {form}, or another mode"
    return ""


def _list_fill_tables(model: EffectiveSettings) -> Iterator[tuple[KeyPath, str, FillTable]]:
    """Yield the path, the input and the table of each fill of the inputs and the cases."""
    for index, table in enumerate(model.settings.inputs):
        if isinstance(table.fill, FillTable):
            yield ("inputs", index, "fill"), table.name, table.fill
    for index, case in enumerate(model.settings.cases if model.has_valid("cases") else ()):
        for name, value in case.values.items():
            if isinstance(value, FillTable):
                yield ("cases", index, "values", name), name, value


def _find_problem(mask: tuple[Dim, ...], output: tuple[Dim, ...]) -> str:
    dims = [dim for dim in mask if dim != 1]
    if not dims:
        return "it has no axis"
    for dim in dims:
        if dims.count(dim) > 1:
            return f"it has {_format_dim(dim)} twice"
        if dim not in output:
            return f"{_format_dims(output)} lacks {_format_dim(dim)}"
        if output.count(dim) > 1:
            return f"{_format_dims(output)} has {_format_dim(dim)} twice"
    return ""


def _format_dim(dim: Dim) -> str:
    return f"the axis {quote(dim)}" if isinstance(dim, str) else f"the size {dim}"


def _format_dims(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"
