"""Edits of the graph of one model each, for the traps in `graphs.py` and `headers.py`."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, helper

from tests.traps import tampering as tamper
from tests.traps.trap import Tamper


def stamp(version: int) -> Tamper:
    """Change the version of the import, and not the graph."""

    def edit(model: ModelProto) -> None:
        model.opset_import[0].version = version

    return tamper.edited(edit)


def ir_version(version: int) -> Tamper:
    return tamper.edited(lambda model: setattr(model, "ir_version", version))


def reshape_to(size: int) -> Tamper:

    def edit(model: ModelProto) -> None:
        last = tamper.node(model, "Reshape", 1)
        model.graph.initializer.append(
            helper.make_tensor("sizes", TensorProto.INT64, [2], [size, 4])
        )
        last.input[1] = "sizes"

    return tamper.edited(edit)


def loop_of(count: int) -> Tamper:

    def edit(model: ModelProto) -> None:
        model.graph.initializer.append(helper.make_tensor("count", TensorProto.INT64, [], [count]))
        tamper.node(model, "Loop").input[0] = "count"

    return tamper.edited(edit)


def transposed_back(model: ModelProto) -> None:
    """Transpose to channels first, and back with height and width exchanged: both are 3."""
    first = tamper.node(model, "Transpose")
    first_name, back, again = first.output[0], "back", "again"
    index = list(model.graph.node).index(first) + 1
    for item in list(model.graph.node)[index:]:
        item.input[:] = [again if name == first_name else name for name in item.input]
    forth = helper.make_node("Transpose", [back], [again], perm=[0, 3, 2, 1])
    model.graph.node.insert(index, forth)
    model.graph.node.insert(
        index, helper.make_node("Transpose", [first_name], [back], perm=[0, 3, 1, 2])
    )


def root_of_magnitude(model: ModelProto) -> None:
    root = tamper.node(model, "Sqrt")
    model.graph.node.insert(0, helper.make_node("Abs", [root.input[0]], ["magnitude"]))
    root.input[0] = "magnitude"


def through_half(model: ModelProto) -> None:
    name = tamper.node(model, "Conv").output[0]
    for item in model.graph.node:
        item.input[:] = ["wide" if used == name else used for used in item.input]
    casts = [
        helper.make_node("Cast", [name], ["narrow"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["narrow"], ["wide"], to=TensorProto.FLOAT),
    ]
    for cast in reversed(casts):
        model.graph.node.insert(1, cast)


def noise(model: ModelProto) -> None:
    """Add random numbers of a millionth to the output."""
    last = next(item for item in model.graph.node if "y" in item.output)
    last.output[0] = "before"
    model.graph.node.extend(
        [
            helper.make_node("RandomNormalLike", ["before"], ["noise"], scale=1e-4),
            helper.make_node("Add", ["before", "noise"], ["y"]),
        ]
    )


def unknown_operator(model: ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("unknown", 1))
    target = tamper.node(model, "LeakyRelu")
    target.domain, target.op_type = "unknown", "Unknown"


def function_of_another_opset(model: ModelProto) -> None:
    body = [helper.make_node("Relu", ["a"], ["b"])]
    imports = [helper.make_opsetid("", 12)]
    model.functions.append(helper.make_function("own", "Act", ["a"], ["b"], body, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.ir_version = 8


def same_output_twice(model: ModelProto) -> None:
    model.graph.output[1].name = "a"


def output_missing(model: ModelProto) -> None:
    del model.graph.output[1]


def output_more(model: ModelProto) -> None:
    model.graph.output.append(
        helper.make_tensor_value_info("left", TensorProto.FLOAT, ["batch", 4])
    )


def outputs_reordered(model: ModelProto) -> None:
    first = model.graph.output[0]
    copy = type(first)()
    copy.CopyFrom(first)
    del model.graph.output[0]
    model.graph.output.append(copy)


def input_renamed(model: ModelProto) -> None:
    model.graph.input[0].name = "l"
    for item in model.graph.node:
        item.input[:] = ["l" if name == "left" else name for name in item.input]


def input_stored(model: ModelProto) -> None:
    """Add a default value: the file runs without the input."""
    model.graph.initializer.append(
        helper.make_tensor("right", TensorProto.FLOAT, [1, 4], [1.0, 2.0, 3.0, 4.0])
    )


def input_unused(model: ModelProto) -> None:
    for item in model.graph.node:
        item.input[:] = ["left" if name == "right" else name for name in item.input]


def axis_fixed(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3


def axis_freed(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"


def axis_names_lost(model: ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].Clear()


def axis_renamed(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"


def shape_lost(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def dtype_of(model: ModelProto) -> None:
    tamper.after("best", "Cast", to=TensorProto.INT32)
    for item in model.graph.node:
        item.output[:] = ["wide" if name == "best" else name for name in item.output]
    model.graph.node.append(helper.make_node("Cast", ["wide"], ["best"], to=TensorProto.INT32))
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT32


def hidden_shape_lie(model: ModelProto) -> None:
    name = tamper.node(model, "Conv").output[0]
    model.graph.value_info.append(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4, 5, 5])
    )


def column_where_none_is(model: ModelProto) -> None:
    """Pad `kept` by a column, with pads computed from a shape, which inference cannot follow."""
    for item in model.graph.node:
        item.output[:] = ["before" if name == "kept" else name for name in item.output]
    zeros = helper.make_tensor("zeros", TensorProto.INT64, [3], [0, 0, 0])
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    model.graph.initializer.extend([zeros, one])
    model.graph.node.extend(
        [
            helper.make_node("Unique", ["one"], ["ones"]),
            helper.make_node("Concat", ["zeros", "ones"], ["pads"], axis=0),
            helper.make_node("Pad", ["before", "pads"], ["kept"]),
        ]
    )
