"""A published data set as ONNX's test runners read it, by the types of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, ValueInfoProto, numpy_helper

from exporter.core.files import TENSOR_LIMIT, read_regular_file


def list_open_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the graph inputs without a value in the file, which a runner supplies."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in stored]


def read_data_set(model: ModelProto, folder: Path) -> tuple[Mapping[str, Any], list[object]]:
    """Return the inputs by name and the outputs in order.

    Raises:
        OSError: If a file is missing.
        DecodeError, ValueError: If a file does not match the type in the graph.
    """
    inputs = {
        item.name: _read_value(folder / f"input_{index}.pb", item)
        for index, item in enumerate(list_open_inputs(model))
    }
    outputs = [
        _read_value(folder / f"output_{index}.pb", item)
        for index, item in enumerate(model.graph.output)
    ]
    return inputs, outputs


def _read_value(path: Path, item: ValueInfoProto) -> object:
    data = read_regular_file(path, TENSOR_LIMIT)
    match item.type.WhichOneof("value"):
        case "optional_type":
            return numpy_helper.to_optional(OptionalProto.FromString(data))
        case "sequence_type":
            return numpy_helper.to_list(SequenceProto.FromString(data))
        case _:
            return numpy_helper.to_array(TensorProto.FromString(data))
