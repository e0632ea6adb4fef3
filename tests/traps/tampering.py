"""Ways to damage an exported file or its external data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.traps.trap import Tamper

Edit = Callable[[ModelProto], object]
Array = np.ndarray[Any, Any]


def edited(edit: Edit) -> Tamper:
    """Return a function that reads a file without its data, changes it and writes it."""

    def tamper(path: Path) -> None:
        model = onnx.load(path, load_external_data=False)
        edit(model)
        path.write_bytes(model.SerializeToString(deterministic=True))

    return tamper


def node(model: ModelProto, operator: str, index: int = 0) -> NodeProto:
    nodes = [item for item in model.graph.node if item.op_type == operator]
    return nodes[index]


def attribute(operator: str, name: str, value: object, index: int = 0) -> Tamper:

    def edit(model: ModelProto) -> None:
        target = node(model, operator, index)
        others = [item for item in target.attribute if item.name != name]
        del target.attribute[:]
        target.attribute.extend([*others, helper.make_attribute(name, value)])

    return edited(edit)


def weight(name: str, change: Callable[[Array], Array]) -> Tamper:

    def edit(model: ModelProto) -> None:
        target = _initializer(model, name)
        changed = change(numpy_helper.to_array(target).copy())
        target.CopyFrom(numpy_helper.from_array(changed, target.name))

    return edited(edit)


def one_element(by: float) -> Callable[[Array], Array]:

    def change(array: Array) -> Array:
        array.flat[0] += by
        return array

    return change


def add_to_row(index: int, number: float) -> Callable[[Array], Array]:

    def change(array: Array) -> Array:
        array[index] += number
        return array

    return change


def constant(value: float, new: float) -> Tamper:
    """Replace a scalar by another number in all its positions."""

    def edit(model: ModelProto) -> None:
        tensors = [*model.graph.initializer]
        tensors += [
            item.t for n in model.graph.node for item in n.attribute if item.name == "value"
        ]
        matches = [t for t in tensors if _is_close(numpy_helper.to_array(t), value)]
        for tensor in matches:
            dtype = numpy_helper.to_array(tensor).dtype
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(new, dtype), tensor.name))
        assert matches, f"no tensor is {value}"

    return edited(edit)


def swap_weights(one: str, other: str) -> Tamper:

    def edit(model: ModelProto) -> None:
        first, second = _initializer(model, one), _initializer(model, other)
        first.name, second.name = second.name, first.name

    return edited(edit)


def skip(operator: str, index: int = 0) -> Tamper:

    def edit(model: ModelProto) -> None:
        target = node(model, operator, index)
        for item in model.graph.node:
            for position, name in enumerate(item.input):
                if name == target.output[0]:
                    item.input[position] = target.input[0]
        model.graph.node.remove(target)

    return edited(edit)


def replace(operator: str, by: str, index: int = 0) -> Tamper:

    def edit(model: ModelProto) -> None:
        target = node(model, operator, index)
        target.op_type = by
        del target.attribute[:]

    return edited(edit)


def after(output: str, operator: str, *constants: Array, **attributes: object) -> Tamper:
    """Insert a node between the graph and an output."""

    def edit(model: ModelProto) -> None:
        for item in model.graph.node:
            for position, name in enumerate(item.output):
                if name == output:
                    item.output[position] = "before"
        names = [f"extra_{index}" for index in range(len(constants))]
        for name, array in zip(names, constants, strict=True):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.graph.node.append(
            helper.make_node(operator, ["before", *names], [output], **attributes)
        )

    return edited(edit)


def swap_names(one: str, other: str) -> Tamper:
    names = {one: other, other: one}

    def edit(model: ModelProto) -> None:
        for item in model.graph.node:
            item.input[:] = [names.get(name, name) for name in item.input]
            item.output[:] = [names.get(name, name) for name in item.output]

    return edited(edit)


def data_file(path: Path) -> Path:
    """Return the external weights file of a model."""
    (data,) = path.parent.glob("weights-*.safetensors")
    return data


def locations(location: str) -> Tamper:
    """Set the location of every external weight."""

    def edit(model: ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location

    return edited(edit)


def entries(key: str, change: Callable[[int], int]) -> Tamper:

    def edit(model: ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == key:
                    entry.value = str(change(int(entry.value)))

    return edited(edit)


def swap_offsets(model: ModelProto) -> None:
    """Exchange the external bytes of two weights of one size."""
    first, second = [t for t in model.graph.initializer if t.external_data]
    entries_of_first = list(first.external_data)
    del first.external_data[:]
    first.external_data.extend(second.external_data)
    del second.external_data[:]
    second.external_data.extend(entries_of_first)


def data_missing(path: Path) -> None:
    data_file(path).unlink()


def data_truncated(path: Path) -> None:
    data = data_file(path)
    os.truncate(data, data.stat().st_size - 4)


def data_linked(path: Path) -> None:
    data = data_file(path)
    elsewhere = path.parent / "elsewhere"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)


def data_hard_linked(path: Path) -> None:
    data = data_file(path)
    data.with_name("second").hardlink_to(data)


def data_absolute(path: Path) -> None:
    locations(str(data_file(path)))(path)


def data_above(path: Path) -> None:
    data = data_file(path)
    shutil.copy(data, path.parent.parent / data.name)
    locations(f"../{data.name}")(path)


#: The first tensor begins after the header of the weights file, which is one page long.
PAGE = 4096


def data_flipped(path: Path) -> None:
    data = data_file(path)
    content = bytearray(data.read_bytes())
    content[PAGE + 3] ^= 0x01
    data.write_bytes(content)


def _initializer(model: ModelProto, name: str) -> TensorProto:
    (tensor,) = [item for item in model.graph.initializer if item.name.endswith(name)]
    return tensor


def _is_close(array: Array, value: float) -> bool:
    return array.ndim == 0 and bool(abs(float(array) - value) < 1e-6 * abs(value))
