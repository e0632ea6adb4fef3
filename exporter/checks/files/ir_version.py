"""What a file holds that only newer IR versions have: a cap must not make it say less than it is.

In: a model. Out: the IR version that its content needs at least, and for what. The source is the
list of changes in `enum Version` of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, TensorProto, TypeProto

from exporter.checks.files.graph_walk import all_tensors, model_graphs, model_nodes

#: Element types that came with an IR version after the first ones.
_TYPES = {
    "BFLOAT16": 4,
    "FLOAT8E4M3FN": 9,
    "FLOAT8E4M3FNUZ": 9,
    "FLOAT8E5M2": 9,
    "FLOAT8E5M2FNUZ": 9,
    "UINT4": 10,
    "INT4": 10,
    "FLOAT4E2M1": 11,
    "FLOAT8E8M0": 12,
    "UINT2": 13,
    "INT2": 13,
}
_NEW_KINDS = ("optional_type", "sparse_tensor_type")
_SINCE = {
    getattr(TensorProto, name): ir for name, ir in _TYPES.items() if hasattr(TensorProto, name)
}


def needed_ir_version(model: ModelProto) -> tuple[int, str]:
    """The lowest IR version that has all that the file holds, and the newest of it in words."""
    return max(_needs(model), default=(3, ""))


def _needs(model: ModelProto) -> Iterator[tuple[int, str]]:
    listed = {item.name for item in model.graph.input}
    if any(item.name not in listed for item in model.graph.initializer):
        yield 4, "initializers that are not listed as inputs"
    if any(graph.quantization_annotation for graph in model_graphs(model)):
        yield 5, "quantization annotations"
    if any(graph.sparse_initializer for graph in model_graphs(model)):
        yield 6, "sparse initializers"
    if model.training_info:
        yield 7, "training information"
    if model.functions:
        yield 8, "functions of its own"
    for function in model.functions:
        if function.attribute_proto:
            yield 9, "default values of a function's attributes"
        if getattr(function, "overload", ""):
            yield 10, "overloads of a function"
    if any(getattr(node, "device_configurations", ()) for node in model_nodes(model)):
        yield 11, "device configurations"
    yield from _types(model)


def _types(model: ModelProto) -> Iterator[tuple[int, str]]:
    found = {tensor.data_type for tensor in all_tensors(model)}
    for graph in model_graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kinds = list(_inside(value.type))
            found.update(kind.tensor_type.elem_type for kind in kinds)
            if any(kind.WhichOneof("value") in _NEW_KINDS for kind in kinds):
                yield 8, "optional or sparse values"
    for element in found & set(_SINCE):
        yield _SINCE[element], f"the type {TensorProto.DataType.Name(element).lower()}"


def _inside(kind: TypeProto) -> Iterator[TypeProto]:
    """The type and those inside it."""
    yield kind
    match kind.WhichOneof("value"):
        case "sequence_type":
            yield from _inside(kind.sequence_type.elem_type)
        case "optional_type":
            yield from _inside(kind.optional_type.elem_type)
        case "map_type":
            yield from _inside(kind.map_type.value_type)
