"""From the exporter's graph to the files that ship.

In: an `onnx_ir.Model`. Out: `<opset>.onnx` and, for all but small models, the weights beside it
as `weights-<hash>.data`, once for all opsets that share them.

The graph is given the contract's axis names and input order, loses torch's metadata (absolute
paths of the sources) and gains provenance. Nothing that a check proves is repaired here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx_ir as ir

from exporter.jobs.job_folder import JobFolder, format_weights_name
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.export.graph_names import name_axes, order_inputs
from exporter.worker.process.failure import Failure

#: Models with more weights than this keep them outside, so that an opset more costs kilobytes.
_INLINE_LIMIT = 1 << 20
#: Smaller tensors stay inside the file: shape inference and optimisers read them.
_TENSOR_LIMIT = 1 << 10
#: Protocol buffers end at 2 GB, and the graph itself needs some of that.
_LARGEST_FILE = (1 << 31) - (1 << 24)
_ALIGNMENT = 1 << 12
_CHUNK = 1 << 20
#: Types whose numbers lie in memory as they do in a file.
_PLAIN = frozenset(
    {
        ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BOOL,
        ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
        ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
    }
)  # fmt: skip
#: From this IR version on, an initializer need not be an input.
_IR_OF_INITIALIZERS = 4


def write_artifact(
    model: ir.Model, spec: ModelSpec, opset: int, folder: JobFolder, provenance: dict[str, str]
) -> Path:
    """Names, cleans and writes one model; the file appears whole or not at all.

    Returns:
        The `.onnx` file.
    """
    order_inputs(model, spec)
    name_axes(model, spec)
    _strip(model)
    for key, value in sorted(provenance.items()):
        model.metadata_props[f"exporter.{key}"] = value
    if spec.ir_version is not None:
        model.ir_version = min(model.ir_version, spec.ir_version)
    # Before IR version 4 every initializer is listed as an input, too.
    if spec.options.get("keep_initializers_as_inputs") or model.ir_version < _IR_OF_INITIALIZERS:
        _list_initializers(model)
    _move_weights_out(model, folder.path, spec.options.get("external_data"))
    path = folder.model(opset)
    with _appearing(folder.path) as fresh:
        fresh.write_bytes(ir.serde.serialize_model(model).SerializeToString(deterministic=True))
        fresh.replace(path)
    return path


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Where to write what is to get its name once it is whole; else nothing of it is left."""
    fresh = folder / f".{os.getpid()}.fresh"
    try:
        yield fresh
    finally:
        # On a full disk it takes the room in which to say so.
        fresh.unlink(missing_ok=True)


def _strip(model: ir.Model) -> None:
    """Removes torch's notes: they hold paths of this machine, and differ between checkouts."""
    for holder in _holders(model):
        for key in [key for key in holder.metadata_props if key.startswith("pkg.")]:
            del holder.metadata_props[key]
        holder.doc_string = None
    model.doc_string = None


def _holders(model: ir.Model) -> Iterator[ir.Model | ir.Graph | ir.Function | ir.Node | ir.Value]:
    yield model
    for graph in model.graphs():
        yield graph
        yield from graph.initializers.values()
        yield from _parts(graph)
    for function in model.functions.values():
        yield function
        yield from _parts(function)


def _parts(graph: ir.Graph | ir.Function) -> Iterator[ir.Node | ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield node
        yield from node.outputs


def _list_initializers(model: ir.Model) -> None:
    listed = {value.name for value in model.graph.inputs}
    for name, value in model.graph.initializers.items():
        if name not in listed:
            model.graph.inputs.append(value)


def _move_weights_out(model: ir.Model, folder: Path, wish: object) -> None:
    """Moves large initializers into the shared file of their content.

    Args:
        model: Changed in place.
        folder: Where the file goes, beside the model.
        wish: The option `external_data`: True, False, or None for as the size asks.
    """
    values = [value for value in model.graph.initializers.values() if value.const_value is not None]
    tensors = [value.const_value for value in values if value.const_value is not None]
    total = sum(tensor.nbytes for tensor in tensors)
    if wish is False and total > _LARGEST_FILE:
        raise Failure(
            Stage.CONVERT,
            f"external_data = false: {total / 1e9:.1f} GB of weights are more than the 2 GB that "
            "one file can hold",
        )
    if wish is False or (wish is None and total <= _INLINE_LIMIT):
        return
    large = [value for value in values if _is_large(value)]
    # By name, so that another order of the same weights is the same file.
    large.sort(key=lambda value: str(value.name))
    chosen = [value.const_value for value in large if value.const_value is not None]
    if not chosen:
        return
    name, offsets = _store(chosen, folder)
    for value, tensor, offset in zip(large, chosen, offsets, strict=True):
        value.const_value = ir.ExternalTensor(
            name,
            offset,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=str(value.name),
            base_dir=folder,
        )


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    # Strings have no bytes that external data could hold.
    return (
        tensor is not None
        and tensor.nbytes >= _TENSOR_LIMIT
        and tensor.dtype is not ir.DataType.STRING
    )


def _store(tensors: Sequence[ir.TensorProtocol], folder: Path) -> tuple[str, list[int]]:
    """Writes the tensors into `weights-<hash>.data`, unless it is there, and tells their places."""
    offsets: list[int] = []
    end = 0
    for tensor in tensors:
        # Page alignment lets runtimes map each tensor instead of reading it.
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        offsets.append(start)
        end = start + tensor.nbytes
    return _there(tensors, offsets, end, folder) or _written(tensors, offsets, folder), offsets


def _there(
    tensors: Sequence[ir.TensorProtocol], offsets: Sequence[int], size: int, folder: Path
) -> str:
    """The name of a file with this very content; empty where there is none.

    Most opsets have the weights of the one before, and to compare takes a fifth of a hash.
    """
    for path in sorted(folder.glob(format_weights_name("*"))):
        found = path.lstat()
        is_alike = stat.S_ISREG(found.st_mode) and found.st_size == size
        if is_alike and _holds(path, _blocks(tensors, offsets)):
            return path.name
    return ""


def _holds(path: Path, blocks: Iterator[memoryview]) -> bool:
    stored, start = np.memmap(path, np.uint8, mode="r"), 0
    for block in blocks:
        end = start + len(block)
        if not np.array_equal(stored[start:end], np.frombuffer(block, np.uint8)):
            return False
        start = end
    return True


def _written(tensors: Sequence[ir.TensorProtocol], offsets: Sequence[int], folder: Path) -> str:
    """Writes the file; the answer is its name."""
    digest = hashlib.sha256()
    with _appearing(folder) as fresh:
        with fresh.open("wb") as file:
            for block in _blocks(tensors, offsets):
                digest.update(block)
                file.write(block)
        name = format_weights_name(digest.hexdigest())
        fresh.replace(folder / name)
    return name


def _blocks(tensors: Sequence[ir.TensorProtocol], offsets: Sequence[int]) -> Iterator[memoryview]:
    end = 0
    for tensor, start in zip(tensors, offsets, strict=True):
        if start > end:
            yield memoryview(bytes(start - end))
        data = _bytes_of(tensor)
        for first in range(0, len(data), _CHUNK):
            yield data[first : first + _CHUNK]
        end = start + tensor.nbytes


def _bytes_of(tensor: ir.TensorProtocol) -> memoryview:
    """What a file has to hold: where that is what lies in memory, no copy of it."""
    if isinstance(tensor, ir.Tensor) and tensor.dtype in _PLAIN and sys.byteorder == "little":
        return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data
    return memoryview(tensor.tobytes())
