"""The weights of a model whose file takes them as inputs (`export_params = false`).

In: a model, or the graph that an exporter made of it. Out: the weights in the order of
`state_dict`, stored for the checks to feed; the graph with these weights as inputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import onnx_ir as ir
import torch

from exporter.checks.files.weight_inputs import write_weight
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Weight
from exporter.manifest import ModelSpec
from exporter.worker.inputs.arrays import to_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.model.source_loader import Model
from exporter.worker.reference.dispatch_modes import record_storages
from exporter.worker.reference.eager_run import BufferSnapshot, run_model


def find_read_storages(
    model: Model, spec: ModelSpec, inputs: Tensors, names: Mapping[str, str]
) -> Container[int]:
    """The addresses of the storages that a run of the model reads.

    Returns:
        None of them where the contract neither names weights nor has them as inputs.
    """
    if not names and not _asked(spec):
        return frozenset()
    buffers = BufferSnapshot(model)
    with record_storages() as places:
        run_model(model, spec, inputs)
    buffers.restore()
    return places


def store_weights(
    model: Model,
    spec: ModelSpec,
    read: Container[int],
    names: Mapping[str, str],
    folder: JobFolder,
) -> tuple[Weight, ...]:
    """Writes every weight, and says which ones a run of the model reads.

    Args:
        model: Whose weights they are.
        spec: The contract.
        read: The addresses of the storages that a run of it reads.
        names: Other names that the file gives to weights, by their own.
        folder: Where the values go.

    Returns:
        None of them where no file of the contract takes weights as inputs.
    """
    if not isinstance(model, torch.nn.Module) or not _asked(spec):
        return ()
    state = {
        name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)
    }
    first: dict[tuple[object, ...], str] = {}
    found = []
    for index, (own, value) in enumerate(state.items()):
        name = names.get(own, own)
        write_weight(folder, index, name, to_numpy(value))
        place = (value.data_ptr(), tuple(value.shape), value.stride())
        owner = first.setdefault(place, name) if value.numel() else name
        found.append(
            Weight(
                name=name,
                dtype=str(value.dtype).removeprefix("torch."),
                shape=tuple(value.shape),
                is_read=value.numel() > 0 and value.untyped_storage().data_ptr() in read,
                same_as="" if owner == name else owner,
            )
        )
    return tuple(found)


def _asked(spec: ModelSpec) -> bool:
    return any(spec.resolve_cell(opset).weights_are_inputs for opset in spec.opsets)


def list_state_names(model: Model) -> tuple[str, ...]:
    """The names in the model's `state_dict`, in its order; a function has none."""
    return tuple(model.state_dict()) if isinstance(model, torch.nn.Module) else ()


def move_weights_to_inputs(model: ir.Model, names: Iterable[str]) -> None:
    """Turns the stored weights into inputs without a value, after all others, in this order.

    What else is stored, constants of the graph, stays inside.
    """
    graph = model.graph
    stored = dict(graph.initializers)
    own = [value for value in graph.inputs if value.name not in stored]
    wanted = [name for name in dict.fromkeys(names) if name in stored]
    graph.inputs.clear()
    for name in wanted:
        value, tensor = stored[name], stored[name].const_value
        del graph.initializers[name]
        if tensor is not None:
            value.type = ir.TensorType(tensor.dtype)
            value.shape = ir.Shape(tensor.shape.numpy())
        value.const_value = None
    graph.inputs.extend([*own, *(stored[name] for name in wanted)])
