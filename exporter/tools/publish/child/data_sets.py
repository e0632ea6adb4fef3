"""A published data set as ONNX's test runners read it, by the types of the graph.

In: a model and a folder `test_data_set_<n>` beside it. Out: inputs by name, outputs in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, ValueInfoProto, numpy_helper


def open_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs of the graph that have no value in the file, which is what runners feed."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in stored]


def values_of(model: ModelProto, folder: Path) -> tuple[Mapping[str, Any], list[object]]:
    """A published data set as a runner reads it: inputs by name, outputs in order.

    Raises:
        OSError: where a file is missing.
        DecodeError, ValueError: where one is something else than the graph says.
    """
    inputs = {
        item.name: _load(folder / f"input_{index}.pb", item)
        for index, item in enumerate(open_inputs(model))
    }
    outputs = [
        _load(folder / f"output_{index}.pb", item) for index, item in enumerate(model.graph.output)
    ]
    return inputs, outputs


def _load(path: Path, item: ValueInfoProto) -> object:
    data = path.read_bytes()
    match item.type.WhichOneof("value"):
        case "optional_type":
            return numpy_helper.to_optional(OptionalProto.FromString(data))
        case "sequence_type":
            return numpy_helper.to_list(SequenceProto.FromString(data))
        case _:
            return numpy_helper.to_array(TensorProto.FromString(data))
