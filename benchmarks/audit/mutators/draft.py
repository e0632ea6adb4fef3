"""A copy of a model that a mutator may change, including its external weights.

External weights are changed in place, a few bytes at a time, to avoid a copy of half a gigabyte for
each mutant.
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
    """Bytes that replace others in an external file."""

    file: str
    offset: int
    data: bytes


@dataclass(slots=True)
class Draft:
    """A model that a mutator changes in one place."""

    model: ModelProto
    folder: Path
    rng: Random
    types: Mapping[str, tuple[int, tuple[int | str, ...]]]
    """Element type and shape of every value of the main graph with a known shape."""
    patches: list[Patch] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    """Names of the tensors in patches."""
    rows: tuple[int, ...] = ()
    """Changed indices along the first axis of a weight, which an input may select."""
    sizes: list[dict[str, int]] = field(default_factory=list)
    """Sizes of axes that show the change."""
    numbers: tuple[float, ...] = ()
    """Values of floating inputs that show the change."""

    def tensors(self, kinds: tuple[int, ...], *, least: int = 1) -> list[TensorProto]:
        """Return stored tensors of these element types with at least `least` elements."""
        tensors = [*iter_initializers(self.model), *_iter_constants(self.model)]
        return [t for t in tensors if t.data_type in kinds and math.prod(t.dims) >= least]

    def read(self, tensor: TensorProto, start: int = 0, count: int = -1) -> Array:
        """Return elements of the flat tensor."""
        if tensor.data_location != TensorProto.EXTERNAL:
            flat = numpy_helper.to_array(tensor).reshape(-1)
            return flat[start:].copy() if count < 0 else flat[start : start + count].copy()
        dtype = tensor_dtype_to_np_dtype(tensor.data_type)
        count = math.prod(tensor.dims) - start if count < 0 else count
        file, offset = _locate_external_data(tensor)
        offset += start * dtype.itemsize
        return np.fromfile(self.folder / file, dtype=dtype, count=count, offset=offset)

    def write(self, tensor: TensorProto, start: int, values: Array) -> None:
        """Replace elements of the flat tensor."""
        if tensor.data_location == TensorProto.EXTERNAL:
            file, offset = _locate_external_data(tensor)
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
    """Apply the patches while the block runs, and restore the files after it."""
    originals = [_write_patch(folder, patch) for patch in patches]
    try:
        yield
    finally:
        for patch in reversed(originals):
            _write_patch(folder, patch)


def _write_patch(folder: Path, patch: Patch) -> Patch:
    """Write the patch and return the patch that reverts it."""
    with (folder / patch.file).open("r+b") as file:
        file.seek(patch.offset)
        old = file.read(len(patch.data))
        file.seek(patch.offset)
        file.write(patch.data)
    return Patch(patch.file, patch.offset, old)


def _iter_constants(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors of `Constant` nodes."""
    for node in iter_nodes(model):
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    if not attribute.t.name:
                        attribute.t.name = node.output[0]  # for the description of a change
                    yield attribute.t


def _locate_external_data(tensor: TensorProto) -> tuple[str, int]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries.get("offset", "0"))
