"""Weights as inputs of the file (`export_params = false`)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import onnx_ir as ir
import torch

from exporter.checks.sample_files import write_weight
from exporter.jobs import JobFolder, Weight
from exporter.manifest import ModelSpec
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.model.source_loader import Model
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.rounding_runs import record_storages


def find_read_storages(
    model: Model, spec: ModelSpec, inputs: Tensors, names: Mapping[str, str]
) -> Container[int]:
    """Return the addresses of the storages that a run of the model reads.

    Returns:
        Empty if the contract neither names weights nor has them as inputs.
    """
    if not names and not _has_weight_inputs(spec):
        return frozenset()
    state = BufferSnapshot(model)
    with record_storages() as storages:
        run_model(model, spec, inputs)
    state.restore()
    return storages


def store_weights(
    model: Model,
    spec: ModelSpec,
    storages: Container[int],
    names: Mapping[str, str],
    folder: JobFolder,
) -> tuple[Weight, ...]:
    """Write every weight to the folder and describe it.

    Args:
        model: The model with the weights.
        spec: The contract.
        storages: The addresses of the storages that a run of the model reads.
        names: The name in the file, by the name in the model.
        folder: The folder for the values.

    Returns:
        Empty if no file of the contract has weights as inputs.
    """
    if not isinstance(model, torch.nn.Module) or not _has_weight_inputs(spec):
        return ()
    state = {
        name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)
    }
    owners: dict[tuple[object, ...], str] = {}
    weights = []
    for index, (source, value) in enumerate(state.items()):
        name = names.get(source, source)
        write_weight(folder, index, name, to_numpy(value))
        view = (value.data_ptr(), tuple(value.shape), value.stride())
        owner = owners.setdefault(view, name) if value.numel() else name
        weights.append(
            Weight(
                name=name,
                dtype=str(value.dtype).removeprefix("torch."),
                shape=tuple(value.shape),
                is_read=value.numel() > 0 and value.untyped_storage().data_ptr() in storages,
                same_as="" if owner == name else owner,
            )
        )
    return tuple(weights)


def _has_weight_inputs(spec: ModelSpec) -> bool:
    return any(spec.resolve_cell(opset).weights_are_inputs for opset in spec.opsets)


def list_state_names(model: Model) -> tuple[str, ...]:
    """Return the names in the model's `state_dict` in order; empty if it is a function."""
    return tuple(model.state_dict()) if isinstance(model, torch.nn.Module) else ()


def move_weights_to_inputs(model: ir.Model, names: Iterable[str]) -> None:
    """Turn stored weights into inputs without a value, after all others, in this order.

    Other initializers, such as constants of the graph, remain.
    """
    graph = model.graph
    stored = dict(graph.initializers)
    inputs = [value for value in graph.inputs if value.name not in stored]
    weights = [name for name in dict.fromkeys(names) if name in stored]
    graph.inputs.clear()
    for name in weights:
        value, tensor = stored[name], stored[name].const_value
        del graph.initializers[name]
        if tensor is not None:
            value.type = ir.TensorType(tensor.dtype)
            value.shape = ir.Shape(tensor.shape.numpy())
        value.const_value = None
    graph.inputs.extend([*inputs, *(stored[name] for name in weights)])
