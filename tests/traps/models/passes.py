"""A model for passes after the export, and passes that keep, break or lose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, helper, numpy_helper
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


def _edit(source: Path, target: Path, change: Any) -> None:
    model = onnx.load(source)
    change(model)
    onnx.save(model, target)


def same(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def rename_nodes(source: Path, target: Path) -> None:
    """Change names that no runtime reads."""

    def change(model: ModelProto) -> None:
        for index, node in enumerate(model.graph.node):
            node.name = f"n{index}"

    _edit(source, target, change)


def move_weights(source: Path, target: Path) -> None:
    model = onnx.load(source)
    onnx.save(model, target, save_as_external_data=True, location="own.bin", size_threshold=64)


def lose_metadata(source: Path, target: Path) -> None:
    """Make a new model of the graph, as many tools do."""
    model = onnx.load(source)
    made = helper.make_model(model.graph, opset_imports=model.opset_import)
    made.ir_version = model.ir_version
    onnx.save(made, target)


def lose_weights(source: Path, target: Path) -> None:
    move_weights(source, target)
    (target.parent / "own.bin").unlink()


def drop_relu(source: Path, target: Path) -> None:
    """Remove an operator, as a wrong simplification does."""

    def change(model: ModelProto) -> None:
        relu = next(node for node in model.graph.node if node.op_type == "Relu")
        for node in model.graph.node:
            node.input[:] = [
                relu.input[0] if name == relu.output[0] else name for name in node.input
            ]
        model.graph.node.remove(relu)

    _edit(source, target, change)


def freeze_batch(source: Path, target: Path) -> None:
    """Fix the batch of the export, as an optimizer with fixed shapes does."""

    def change(model: ModelProto) -> None:
        last = model.graph.node[-1].output[0]
        model.graph.node[-1].output[0] = "before"
        shape = numpy_helper.from_array(np.array([3, 5], np.int64), "fixed")
        model.graph.initializer.append(shape)
        model.graph.node.append(helper.make_node("Reshape", ["before", "fixed"], [last]))

    _edit(source, target, change)


def rename_output(source: Path, target: Path) -> None:

    def change(model: ModelProto) -> None:
        model.graph.node[-1].output[0] = model.graph.output[0].name = "result"

    _edit(source, target, change)


def raise_opset(source: Path, target: Path) -> None:
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), 19), target)


def scale(source: Path, target: Path, factor: float = 1.0) -> None:
    """Change the size of a weight; the factor 1 changes nothing that counts."""

    def change(model: ModelProto) -> None:
        bias = next(each for each in model.graph.initializer if each.dims[:] == [5])
        values = numpy_helper.to_array(bias) * np.float32(factor)
        bias.CopyFrom(numpy_helper.from_array(values, bias.name))

    _edit(source, target, change)


def to_float16(source: Path, target: Path) -> None:
    """Convert the file to float16 as docs/recipes.md does."""
    from onnxruntime.transformers.onnx_model import OnnxModel

    model = OnnxModel(onnx.load(source))
    model.convert_float_to_float16(keep_io_types=True)
    model.topological_sort()
    onnx.save(model.model, target)


def quantize(source: Path, target: Path, samples: list[dict[str, Any]], factor: float = 1) -> None:
    """Quantize with the ranges of the samples; a factor spoils them."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inputs = iter(samples)

        def get_next(self) -> dict[str, Any] | None:
            inputs = next(self.inputs, None)
            return inputs and {
                name: (array * factor).astype(array.dtype) for name, array in inputs.items()
            }

    prepared = target.with_suffix(".prepared")
    _edit(source, prepared, lambda model: model.graph.ClearField("value_info"))
    quantization.quantize_static(prepared, target, Reader(), per_channel=True)
    prepared.unlink()


def nothing(source: Path, target: Path) -> None:
    """Write no file."""


def text(source: Path, target: Path) -> None:
    target.write_text("no model")


def beside(source: Path, target: Path) -> None:
    (target.parent / "model.onnx").write_bytes(source.read_bytes())


def failing(source: Path, target: Path) -> None:
    raise ValueError("no rule for Conv")


def in_place(source: Path, target: Path) -> None:
    rename_output(source, target)
    source.write_bytes(target.read_bytes())


def to_int8(source: Path, target: Path) -> None:
    """Quantize the weights; the ranges of activations are measured in each run."""
    from onnxruntime import quantization

    prepared = target.with_suffix(".prepared")
    _edit(source, prepared, lambda model: model.graph.ClearField("value_info"))
    quantization.quantize_dynamic(prepared, target)
    prepared.unlink()
