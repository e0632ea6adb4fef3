"""A copy of a model that a mutator may change, its external weights included.

In: a model and the folder of its file. Out: a `Draft`: places to change, chosen by a seeded
generator, and the `Patch`es that the change makes to files beside the model.

Weights outside the file are changed where they lie, a few bytes at a time: half a gigabyte is not
copied for each mutant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.runtimes.graph_walk import iter_initializers, iter_nodes

Array = np.ndarray[Any, Any]

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
INTEGERS = (TensorProto.INT64, TensorProto.INT32)


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes that take the place of others in a file beside the model."""

    file: str
    offset: int
    data: bytes


@dataclass(slots=True)
class Draft:
    """A model to be changed in one place."""

    model: ModelProto
    folder: Path
    rng: Random
    types: Mapping[str, tuple[int, tuple[int | str, ...]]]
    """Element type and shape of every value of the main graph whose shape is known; of
    initializers too."""
    patches: list[Patch] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    """Names of the tensors that patches change."""
    rows: tuple[int, ...] = ()
    """Indices along the first axis of a weight that were changed: an input may select them."""

    def tensors(self, kinds: tuple[int, ...], *, least: int = 1) -> list[TensorProto]:
        """Stored tensors of these element types, with at least so many elements."""
        found = [*iter_initializers(self.model), *_constants(self.model)]
        return [t for t in found if t.data_type in kinds and math.prod(t.dims) >= least]

    def read(self, tensor: TensorProto, start: int = 0, count: int = -1) -> Array:
        """Elements of a tensor in their flat order."""
        if tensor.data_location != TensorProto.EXTERNAL:
            flat = numpy_helper.to_array(tensor).reshape(-1)
            return flat[start:].copy() if count < 0 else flat[start : start + count].copy()
        dtype = tensor_dtype_to_np_dtype(tensor.data_type)
        count = math.prod(tensor.dims) - start if count < 0 else count
        file, offset = _place(tensor)
        offset += start * dtype.itemsize
        return np.fromfile(self.folder / file, dtype=dtype, count=count, offset=offset)

    def write(self, tensor: TensorProto, start: int, values: Array) -> None:
        """Puts elements in the place of others, in the flat order."""
        if tensor.data_location == TensorProto.EXTERNAL:
            file, offset = _place(tensor)
            data = values.astype(tensor_dtype_to_np_dtype(tensor.data_type)).tobytes()
            item = tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            self.patches.append(Patch(file, offset + start * item, data))
            self.touched.append(tensor.name)
            return
        array = numpy_helper.to_array(tensor)
        flat = array.reshape(-1).copy()
        flat[start : start + len(values)] = values
        tensor.CopyFrom(numpy_helper.from_array(flat.reshape(array.shape), tensor.name))


@contextmanager
def apply_patches(patches: list[Patch], folder: Path) -> Iterator[None]:
    """Changes files while the block runs, and puts them back as they were."""
    before = [_exchange(folder, patch) for patch in patches]
    try:
        yield
    finally:
        for patch in reversed(before):
            _exchange(folder, patch)


def _exchange(folder: Path, patch: Patch) -> Patch:
    """Writes the patch; the answer undoes it."""
    with (folder / patch.file).open("r+b") as file:
        file.seek(patch.offset)
        old = file.read(len(patch.data))
        file.seek(patch.offset)
        file.write(patch.data)
    return Patch(patch.file, patch.offset, old)


def _constants(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors that `Constant` nodes hold."""
    for node in iter_nodes(model):
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    if not attribute.t.name:
                        attribute.t.name = node.output[0]  # so that a line can name it
                    yield attribute.t


def _place(tensor: TensorProto) -> tuple[str, int]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries.get("offset", "0"))
