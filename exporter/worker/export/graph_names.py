"""The contract's names in the exporter's graph: inputs, outputs, axes and weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import onnx_ir as ir

from exporter.manifest import ModelSpec
from exporter.manifest.resolved.call import TensorSpec
from exporter.worker.export.size_terms import equals_declared_size

#: A dimension that is a multiple of a symbol, in the notation of torch.export.
_FACTORED = re.compile(r"(\d+)\*(\w+)")


def separate_aliased_outputs(
    ir_model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Insert an `Identity` before each output that is also an input or another output.

    The optimizer of dynamo does the same. Without it, dynamo renames such a value for each of its
    places, so two outputs have the last name, or an input has the name of an output.

    `inputs`, `outputs`: The names in the order of the model.
    """
    graph = ir_model.graph
    seen = set(graph.inputs)
    aliased = []
    for index, value in enumerate(graph.outputs):
        if value in seen:
            aliased.append(index)
        seen.add(value)
    for index in aliased:
        node = ir.node("Identity", inputs=[graph.outputs[index]])
        (copy,) = node.outputs
        copy.type, copy.shape = graph.outputs[index].type, graph.outputs[index].shape
        graph.append(node)
        graph.outputs[index] = copy
    if aliased:
        for values, names in ((graph.inputs, inputs), (graph.outputs, outputs)):
            for value, name in zip(values, names, strict=False):  # weights may follow
                value.name = name


def rename_inner_values(ir_model: ir.Model) -> None:
    """Rename the values of nodes that have the name of an input or another output.

    An exporter names such a value after its node, and no one promised that name. The name of a
    value in the file must be unique.
    """
    ends = {*ir_model.graph.inputs, *ir_model.graph.outputs}
    promised = {value.name for value in ends}
    inner = [value for node in ir_model.graph.all_nodes() for value in node.outputs]
    inner += [value for graph in ir_model.graph.subgraphs() for value in graph.inputs]
    taken = promised | {*ir_model.graph.initializers, *(value.name for value in inner)}
    for value in inner:
        if value.name in promised and value not in ends:
            number = next(n for n in count(1) if f"{value.name}_{n}" not in taken)
            value.name = f"{value.name}_{number}"
            taken.add(value.name)


#: Names of weights that an exporter computes, such as a transposed matrix.
_NUMBERED = re.compile(r"(onnx::\w+|val)_\d+")


def rename_numbered_weights(ir_model: ir.Model, weights: Iterable[ir.Value]) -> None:
    """Rename the weights whose number an exporter counts, in the order of their use.

    The number depends on all nodes before, so it differs between opsets. With one name, the opsets
    share one file of weights.
    """
    numbered = {value for value in weights if _NUMBERED.fullmatch(str(value.name))}
    nodes = list(ir_model.graph.all_nodes())
    taken = {
        value.name for value in (*ir_model.graph.inputs, *ir_model.graph.initializers.values())
    }
    taken |= {value.name for node in nodes for value in node.outputs}
    taken |= {value.name for graph in ir_model.graph.subgraphs() for value in graph.inputs}
    names = (name for number in count() if (name := f"weight_{number}") not in taken)
    for value in dict.fromkeys(value for node in nodes for value in node.inputs):
        if value in numbered:
            value.name = next(names)


def order_inputs(ir_model: ir.Model, spec: ModelSpec) -> None:
    """Sort the inputs by the contract; runtimes use names, so no result changes."""
    by_name = {value.name: value for value in ir_model.graph.inputs}
    names = [item.name for item in spec.inputs]
    if set(names) <= set(by_name) and len(by_name) == len(ir_model.graph.inputs):
        others = [value for value in ir_model.graph.inputs if value.name not in names]
        ir_model.graph.inputs.clear()
        ir_model.graph.inputs.extend([*(by_name[name] for name in names), *others])


def name_axes(ir_model: ir.Model, spec: ModelSpec) -> None:
    """Replace the symbols of the exporter (`s77`) by the contract's names.

    If a symbol has two names in the contract, it gets the first one. The exporter then found that
    both axes are equal, and the signature check reports it. An axis of outputs only is named in
    place. An expression gets the declared name or size if it has that size for all promised sizes.
    """
    names: dict[str, str] = {}
    parts: dict[str, str] = {}
    symbols: dict[str, tuple[str, int]] = {}
    for _, shape, item in _match_values(ir_model.graph.inputs, spec.inputs):
        for dim, name in zip(shape, item.file_shape, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value and isinstance(name, str):
                names.setdefault(dim.value, name)
                symbols.setdefault(dim.value, (name, 1))
                if factored := _FACTORED.fullmatch(dim.value):
                    # If `8*s62` is the axis, `s62` in other places is the axis divided by 8.
                    step, symbol = factored.groups()
                    parts.setdefault(symbol, f"({name}//{step})")
                    symbols.setdefault(symbol, (name, int(step)))
    names = {**parts, **names}
    equal = [
        [
            isinstance(dim, ir.SymbolicDim)
            and dim.value not in (None, size)
            and equals_declared_size(str(dim.value), size, symbols, spec)
            for dim, size in zip(shape, item.file_shape, strict=True)
        ]
        for _, shape, item in _match_values(ir_model.graph.outputs, spec.outputs)
    ]
    if any(symbol != name for symbol, name in names.items()):
        from torch.onnx import ONNXProgram

        # The public function also renames symbols in expressions such as `2*s77`.
        renames: dict[str | ir.SymbolicDim, str] = dict(names.items())
        ONNXProgram(ir_model, None).rename_axes(renames)
    # The dimension of an output-only axis is an expression of input symbols.
    fixed = {*names.values(), *spec.size_rules}
    outputs = list(_match_values(ir_model.graph.outputs, spec.outputs))
    for (value, frozen, item), are_equal in zip(outputs, equal, strict=True):
        shape = frozen.copy()
        for index, size in enumerate(item.file_shape):
            is_free = isinstance(size, str) and size not in fixed
            if are_equal[index] or (is_free and isinstance(shape[index], ir.SymbolicDim)):
                shape[index] = size
        value.shape = shape


def write_declared_sizes(ir_model: ir.Model, spec: ModelSpec) -> tuple[str, ...]:
    """Write declared sizes for the sizes that TorchScript's shape inference does not know.

    TorchScript names an unknown dimension after a node (`Reshapey_dim_1`), or after an axis that
    had the same symbol. The size may still be fixed. Every sample that runs later proves it. The
    result is one note for each changed output.
    """
    notes = []
    for value, frozen, item in _match_values(ir_model.graph.outputs, spec.outputs):
        shape = frozen.copy()
        unknown = [
            index
            for index, (dim, size) in enumerate(zip(shape, item.file_shape, strict=True))
            if isinstance(size, int) and isinstance(dim, ir.SymbolicDim)
        ]
        if unknown:
            for index in unknown:
                shape[index] = item.file_shape[index]
            value.shape = shape
            dims = ", ".join(str(index) for index in unknown)
            notes.append(
                f"TorchScript does not know the size of dimension {dims} of output "
                f"'{item.name}': the file contains the declared size"
            )
    return tuple(notes)


def _match_values(
    values: Iterable[ir.Value], items: Iterable[TensorSpec]
) -> Iterator[tuple[ir.Value, ir.Shape, TensorSpec]]:
    """Yield the values of the contract with the declared rank.

    The shape of a file is frozen; changes need a copy.
    """
    by_name = {item.name: item for item in items}
    for value in values:
        item = by_name.get(str(value.name))
        shape = value.shape
        if item is not None and shape is not None and len(shape) == len(item.file_shape):
            yield value, shape, item


def rename_weights(ir_model: ir.Model, names: Mapping[str, str]) -> None:
    """Rename the weights of a graph, and any other value with one of the new names."""
    # With `export_params = false`, inputs replace the initializers.
    values = dict(ir_model.graph.initializers.items())
    values |= {str(value.name): value for value in ir_model.graph.inputs}
    weights = {name: value for name, value in values.items() if name in names}
    new_names = {names[name] for name in weights}
    for node in ir_model.graph.all_nodes():
        for output in node.outputs:
            if output.name in new_names:
                output.name = f"{output.name}_value"
    renamed: set[str] = set()
    # Temporary names first, because two weights may exchange their names.
    for number, value in enumerate(weights.values()):
        value.name = f"_exporter_weight_{number}"
    for name, value in weights.items():
        # The second copy of a shared weight keeps its own name.
        value.name = names[name] if names[name] not in renamed else name
        renamed.add(names[name])
