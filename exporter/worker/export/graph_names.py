"""The contract's names on the exporter's graph: order of inputs, names of axes.

In: an `onnx_ir.Model` as the exporter made it. Out: the same model, renamed in place. Only names
and annotations change, never what the graph computes.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from exporter.manifest import ModelSpec

#: A dimension that is a multiple of a symbol, as torch.export writes it.
_FACTORED = re.compile(r"(\d+)\*(\w+)")


def order_inputs(model: ir.Model, spec: ModelSpec) -> None:
    """Inputs in the order of the contract; runtimes go by name, so this changes no result."""
    by_name = {value.name: value for value in model.graph.inputs}
    wanted = [item.name for item in spec.inputs]
    if set(wanted) <= set(by_name) and len(by_name) == len(model.graph.inputs):
        rest = [value for value in model.graph.inputs if value.name not in wanted]
        ordered = [by_name[name] for name in wanted] + rest
        model.graph.inputs.clear()
        model.graph.inputs.extend(ordered)


def name_axes(model: ir.Model, spec: ModelSpec) -> None:
    """Gives the symbols of the exporter (`s77`) the contract's names, wherever they stand.

    A symbol that would need two names keeps the first: the exporter found the two axes to be
    one, and the signature check says so. An axis that only an output has is named in place.
    """
    names: dict[str, str] = {}
    parts: dict[str, str] = {}
    inputs = {item.name: item for item in spec.inputs}
    for value in model.graph.inputs:
        item = inputs.get(str(value.name))
        if item is None or value.shape is None or len(value.shape) != len(item.file_shape):
            continue
        for dim, wanted in zip(value.shape, item.file_shape, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value and isinstance(wanted, str):
                names.setdefault(dim.value, wanted)
                if factored := _FACTORED.fullmatch(dim.value):
                    # `8*s62` is the axis: what is left of `s62` elsewhere is a part of it.
                    step, symbol = factored.groups()
                    parts.setdefault(symbol, f"({wanted}//{step})")
    names = {**parts, **names}
    if any(symbol != name for symbol, name in names.items()):
        _rename_symbols(model, names)
    _name_output_axes(model, spec, {*names.values()})


def _rename_symbols(model: ir.Model, names: dict[str, str]) -> None:
    from torch.onnx import ONNXProgram

    # The public renaming also rewrites expressions such as `2*s77`.
    renames: dict[str | ir.SymbolicDim, str] = dict(names.items())
    ONNXProgram(model, None).rename_axes(renames)


def _name_output_axes(model: ir.Model, spec: ModelSpec, taken: set[str]) -> None:
    """An output-only axis has no symbol of the inputs: its dimension is an expression of theirs."""
    by_name = {item.name: item for item in spec.outputs}
    for value in model.graph.outputs:
        item = by_name.get(str(value.name))
        if item is None or value.shape is None or len(value.shape) != len(item.file_shape):
            continue
        value.shape = value.shape.copy()  # a shape that was read from a file is frozen
        for index, wanted in enumerate(item.file_shape):
            is_symbolic = isinstance(value.shape[index], ir.SymbolicDim)
            if is_symbolic and isinstance(wanted, str) and wanted not in taken:
                value.shape[index] = wanted


def write_declared_sizes(model: ir.Model, spec: ModelSpec) -> tuple[str, ...]:
    """Writes declared sizes where TorchScript's shape inference gave up, and says where.

    It names such a dimension after a node (`Reshapey_dim_1`), which says that the size is not
    known, not that it varies. That it is the declared one is proved with every sample that the
    file is run on. A name of the contract's own in that place is left for the signature check.
    """
    own = {axis.name for axis in spec.axes}
    stated = []
    by_name = {item.name: item for item in spec.outputs}
    for value in model.graph.outputs:
        item = by_name.get(str(value.name))
        if item is None or value.shape is None or len(value.shape) != len(item.file_shape):
            continue
        unknown = [
            index
            for index, (dim, wanted) in enumerate(zip(value.shape, item.file_shape, strict=True))
            if isinstance(wanted, int) and isinstance(dim, ir.SymbolicDim) and dim.value not in own
        ]
        if unknown:
            value.shape = value.shape.copy()  # a shape that was read from a file is frozen
            for index in unknown:
                value.shape[index] = item.file_shape[index]
            dims = ", ".join(str(index) for index in unknown)
            stated.append(
                f"TorchScript does not know the size of dimension {dims} of output "
                f"'{item.name}': the file states the declared one"
            )
    return tuple(stated)
