"""Weights in the interface of a file: with promised names, or as inputs without a value."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx import numpy_helper

from exporter.core.text import join_names
from exporter.jobs import JobFolder, NamedWeight, Weight
from exporter.manifest import ModelSpec, ParameterNames
from exporter.manifest.resolved.model import NUMBER_PLACEHOLDER
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private import internals


def resolve_weight_names(model: Model, spec: ModelSpec) -> dict[str, str]:
    """Return the name in the file for each weight, by its name in the model.

    Weights that share one tensor get the name of the first one.

    Raises:
        Failure: At stage `source`, if the manifest's names do not match the weights.
    """
    parameters = spec.parameters
    if parameters is None:
        return {}
    weights = _list_weights(model, with_buffers=bool(parameters.patterns))
    if not weights:
        raise Failure(Stage.SOURCE, f"parameters: {spec.source} has no weights; remove the key")
    first: dict[int, str] = {}
    for name, tensor in weights.items():
        first.setdefault(id(tensor), name)
    names = _assign_names(parameters, tuple(first.values()))
    signature = {item.name for item in (*spec.inputs, *spec.outputs)}
    counts = Counter(names.values())
    # The second name of a shared weight is free, because the file has one copy.
    unnamed = {
        name
        for name, tensor in _list_weights(model, with_buffers=True).items()
        if first.get(id(tensor)) not in names
    }
    for weight, name in names.items():
        if name in signature:
            message = f"parameters: '{name}' for {weight} is also an input or output; rename one"
            raise Failure(Stage.SOURCE, message)
        if name in unnamed:
            message = f"parameters: '{name}' for {weight} is the name of another weight; name both"
            raise Failure(Stage.SOURCE, message)
        if counts[name] > 1:
            message = f"parameters: {counts[name]} weights have the name '{name}'; rename them"
            raise Failure(Stage.SOURCE, message)
    return {
        name: names[first[id(tensor)]]
        for name, tensor in weights.items()
        if first[id(tensor)] in names
    }


def _assign_names(parameters: ParameterNames, weights: Sequence[str]) -> dict[str, str]:
    if parameters.template:
        template = parameters.template
        return {name: _fill_number(template, index) for index, name in enumerate(weights)}
    if parameters.names:
        if len(parameters.names) > len(weights):
            raise Failure(
                Stage.SOURCE,
                f"parameters: {len(parameters.names)} names for {len(weights)} weights: "
                f"{join_names(weights)}; remove the last {len(parameters.names) - len(weights)}",
            )
        return dict(zip(weights, parameters.names, strict=False))
    return dict(_match_patterns(parameters.patterns, weights))


def _match_patterns(
    patterns: Mapping[str, str], weights: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield each weight with the name of the first pattern that matches it."""
    remaining = list(weights)
    for pattern, name in patterns.items():
        matches = [weight for weight in remaining if fnmatchcase(weight, pattern)]
        if not matches:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' matches none of the remaining weights: "
                f"{join_names(remaining)}",
            )
        if NUMBER_PLACEHOLDER not in name and len(matches) > 1:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' matches {len(matches)} weights, but '{name}' is one "
                f"name; write '{name}_{NUMBER_PLACEHOLDER}'",
            )
        for index, weight in enumerate(matches):
            yield weight, _fill_number(name, index)
            remaining.remove(weight)


def _fill_number(name: str, number: int) -> str:
    return name.replace(NUMBER_PLACEHOLDER, str(number))


def _list_weights(model: Model, *, with_buffers: bool) -> dict[str, torch.Tensor]:
    """Return parameters in their order, then saved buffers; shared ones under every name."""
    weights: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    if with_buffers:
        state = model.state_dict(keep_vars=True)
        weights |= {
            name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)
        }
    return weights


@contextmanager
def record_storages() -> Iterator[set[int]]:
    """Collect the addresses of all storages that operators read inside."""
    addresses: set[int] = set()

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for leaf in internals.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                addresses.add(leaf.untyped_storage().data_ptr())
        return func(*args, **kwargs)

    with create_mode(record):
        yield addresses


def describe_weights(
    model: Model, spec: ModelSpec, inputs: Tensors, names: Mapping[str, str], job_folder: JobFolder
) -> tuple[tuple[NamedWeight, ...], tuple[Weight, ...]]:
    """Describe the weights with promised names, and all weights if they are inputs of a file.

    The values of the inputs are written to the folder.

    `names`: The names in the file, by those in the model.
    """
    are_inputs = any(spec.resolve_cell(opset).weights_are_inputs for opset in spec.opsets)
    if not names and not are_inputs:
        return (), ()
    with BufferSnapshot(model), record_storages() as storages:  # those that a run reads
        run_model(model, spec, inputs)
    weights = _list_weights(model, with_buffers=True)
    described: dict[str, NamedWeight] = {}
    for source, name in names.items():
        if name not in described:
            tensor = weights[source].detach().cpu().contiguous()
            data = b""  # the values in the order of a file, row by row
            if tensor.numel():
                data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            described[name] = NamedWeight(
                name=name,
                source=source,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                sha256=hashlib.sha256(data).hexdigest(),
                is_read=weights[source].untyped_storage().data_ptr() in storages,
            )
    stored = tuple(_store_weights(model, names, storages, job_folder)) if are_inputs else ()
    return tuple(described.values()), stored


def _store_weights(
    model: Model, names: Mapping[str, str], storages: Container[int], job_folder: JobFolder
) -> Iterator[Weight]:
    """Write each weight in the order of the `state_dict`, and yield its description."""
    owners: dict[tuple[object, ...], str] = {}
    state = model.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    for index, (source, value) in enumerate(tensors.items()):
        name, path = names.get(source, source), job_folder.weight(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        proto = numpy_helper.from_array(np.asarray(to_numpy(value)), name)
        path.write_bytes(proto.SerializeToString(deterministic=True))
        view = (value.data_ptr(), tuple(value.shape), value.stride())
        owner = owners.setdefault(view, name) if value.numel() else name
        yield Weight(
            name=name,
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(value.shape),
            is_read=value.numel() > 0 and value.untyped_storage().data_ptr() in storages,
            same_as="" if owner == name else owner,
        )


def move_weights_to_inputs(ir_model: ir.Model, names: Iterable[str]) -> None:
    """Turn stored weights into inputs without a value, after all others, in this order.

    The inputs of such a file are the declared ones, and then every weight that the model reads. The
    weights have their names and the order of `state_dict`. None of them has a value in the file.

    Other initializers, such as constants of the graph, remain.
    """
    graph = ir_model.graph
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
