"""Weights that are inputs of the file (`export_params = false`): their check and their values.

The inputs of such a file are the declared ones, and then every weight that the model reads. The
weights have their names and the order of `state_dict`. None of them has a value in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, ValueInfoProto, load_tensor, numpy_helper

from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.core.text import join_names
from exporter.jobs import JobFolder, Weight
from exporter.runtimes.graph_walk import format_dtype
from exporter.runtimes.session import Array


def write_weight(folder: JobFolder, index: int, name: str, array: Array) -> None:
    """Write one weight; `index` is its position in the `state_dict`."""
    path = folder.weight(index)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensor = numpy_helper.from_array(np.asarray(array), name)
    path.write_bytes(tensor.SerializeToString(deterministic=True))


def read_weight_inputs(
    path: Path, folder: JobFolder, weights: Sequence[Weight], declared: Collection[str]
) -> Mapping[str, Array]:
    """Return the values of the weights that are inputs of a file.

    Args:
        path: The file.
        folder: The folder with the stored weights.
        weights: All weights, in order.
        declared: The inputs of the contract.
    """
    try:
        inputs = read_model(path).graph.input
    except UnreadableModel:  # the structure checks report it
        return {}
    names = {item.name for item in inputs} - set(declared)
    return {
        weight.name: numpy_helper.to_array(load_tensor(folder.weight(index)))
        for index, weight in enumerate(weights)
        if weight.name in names
    }


def find_weight_input_problems(
    model: ModelProto, weights: Sequence[Weight], declared: Collection[str], needed: Collection[str]
) -> Iterator[str]:
    """Yield the differences between the undeclared inputs and the weights.

    Args:
        model: The file.
        weights: The entries of the `state_dict`, in order.
        declared: The inputs of the contract.
        needed: Every name that the outputs depend on.
    """
    weights_by_name = {weight.name: weight for weight in weights if weight.name not in declared}
    names = [item.name for item in model.graph.input]
    inputs = [name for name in names if name in weights_by_name]
    stored = [tensor.name for tensor in model.graph.initializer if tensor.name in weights_by_name]
    if stored:
        yield f"{_count_weights(stored)} stored in the file: {join_names(stored)}"
    missing = []
    for weight in weights_by_name.values():
        # Another name of the same tensor is enough.
        aliases = {item.name for item in weights if item.same_as == weight.name} | {weight.name}
        is_required = weight.is_read and not weight.same_as and weight.name not in stored
        if is_required and aliases.isdisjoint(inputs):
            missing.append(weight.name)
    if missing:
        yield f"{_count_weights(missing)} not an input of the file: {join_names(missing)}"
    if inputs != [name for name in weights_by_name if name in set(inputs)]:
        yield f"weights have another order than in the state_dict: {join_names(inputs)}"
    elif any(name in declared for name in names[len(names) - len(inputs) :]):
        yield "weights come before declared inputs"
    for item in model.graph.input:
        if item.name in weights_by_name:
            yield from _compare_weight(item, weights_by_name[item.name])
            if item.name not in needed:
                yield f"the graph ignores the weight '{item.name}'"


def _compare_weight(item: ValueInfoProto, weight: Weight) -> Iterator[str]:
    tensor = item.type.tensor_type
    dtype = format_dtype(tensor.elem_type)
    if dtype != weight.dtype:
        yield f"the weight '{item.name}' is {dtype}, expected {weight.dtype}"
    dims = tensor.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
    if shape != list(weight.shape):
        yield f"the weight '{item.name}' is {shape}, expected {list(weight.shape)}"


def _count_weights(names: Sequence[str]) -> str:
    return "1 weight is" if len(names) == 1 else f"{len(names)} weights are"
