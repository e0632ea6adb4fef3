"""Weights that are inputs of the file (`export_params = false`): which these must be, and values.

In: a `CheckContext`, and what PyTorch's weights are. Out: what is wrong, in words; the weights to feed.

The inputs of such a file are the declared ones, then every weight that the model reads, by its name
and in the order of `state_dict`; none of them has a value in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, ValueInfoProto, numpy_helper

from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Weight
from exporter.runtimes.dtypes import dtype_name

Array = np.ndarray[Any, Any]

_MANY = 5


def write_weight(folder: JobFolder, index: int, name: str, array: Array) -> None:
    """Stores one weight, the `index`th of the `state_dict`."""
    path = folder.weight(index)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensor = numpy_helper.from_array(np.asarray(array), name)
    path.write_bytes(tensor.SerializeToString(deterministic=True))


def weight_input_values(
    path: Path, folder: JobFolder, weights: Sequence[Weight], declared: Collection[str]
) -> Mapping[str, Array]:
    """The values of those weights that a file takes as inputs.

    Args:
        path: The file.
        folder: Where the weights were stored.
        weights: All of them, in order.
        declared: The inputs of the contract.
    """
    try:
        inputs = onnx.load(path, load_external_data=False).graph.input
    except (OSError, DecodeError, ValueError):  # which the structure checks say
        return {}
    wanted = {item.name for item in inputs} - set(declared)
    return {
        weight.name: numpy_helper.to_array(onnx.load_tensor(folder.weight(index)))
        for index, weight in enumerate(weights)
        if weight.name in wanted
    }


def weight_input_problems(
    model: ModelProto, weights: Sequence[Weight], declared: Collection[str], needed: Collection[str]
) -> Iterator[str]:
    """Where the inputs besides the declared ones are not the weights.

    Args:
        model: The file.
        weights: What the `state_dict` holds, in order.
        declared: The inputs of the contract.
        needed: Every name that the outputs depend on.
    """
    known = {weight.name: weight for weight in weights if weight.name not in declared}
    names = [item.name for item in model.graph.input]
    found = [name for name in names if name in known]
    stored = [tensor.name for tensor in model.graph.initializer if tensor.name in known]
    if stored:
        yield f"{_count(stored)} stored in the file: {_some(stored)}"
    absent = [
        weight.name
        for weight in known.values()
        if weight.is_read and not weight.same_as and not _has(found, weight, weights)
    ]
    if missing := [name for name in absent if name not in stored]:
        yield f"{_count(missing)} no input of the file: {_some(missing)}"
    if found != [name for name in known if name in set(found)]:
        yield f"weights stand in another order than in the state_dict: {_some(found)}"
    elif any(name in declared for name in names[len(names) - len(found) :]):
        yield "weights stand before declared inputs"
    for item in model.graph.input:
        if item.name in known:
            yield from _value_problems(item, known[item.name])
            if item.name not in needed:
                yield f"the graph ignores the weight '{item.name}'"


def _has(found: Collection[str], weight: Weight, weights: Iterable[Weight]) -> bool:
    """Whether the weight, or another name of the same one, is an input."""
    twins = {item.name for item in weights if item.same_as == weight.name}
    return not twins.isdisjoint(found) or weight.name in found


def _value_problems(item: ValueInfoProto, weight: Weight) -> Iterator[str]:
    tensor = item.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if dtype != weight.dtype:
        yield f"the weight '{item.name}' is {dtype}, PyTorch's is {weight.dtype}"
    dims = tensor.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
    if shape != list(weight.shape):
        yield f"the weight '{item.name}' is {shape}, PyTorch's is {list(weight.shape)}"


def _count(names: Sequence[str]) -> str:
    return "1 weight is" if len(names) == 1 else f"{len(names)} weights are"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MANY]) + (", …" if len(names) > _MANY else "")
