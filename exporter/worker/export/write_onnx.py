"""The files of an artifact, written from the exporter's graph.

The graph gets the contract's axis names, input order and provenance. Metadata of torch is removed,
because it contains absolute paths. Properties that a check proves are not repaired here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from exporter.checks.model_file import (
    UnreadableModel,
    find_external_data_problems,
    find_link_problems,
    list_external_files,
    read_model,
    rename_external_files,
)
from exporter.core.files import hash_file
from exporter.jobs import JobFolder, format_weights_name
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.runtimes.chain import list_links
from exporter.worker.export.graph_names import (
    name_axes,
    order_inputs,
    rename_inner_values,
    rename_numbered_weights,
)
from exporter.worker.process.failure import Failure, format_message

#: Models with more bytes of weights use external data, so another opset needs only kilobytes.
_INLINE_LIMIT = 1 << 20
#: Smaller tensors stay inside the file: shape inference and optimizers read them.
_TENSOR_LIMIT = 1 << 10
#: Protocol buffers are limited to 2 GB, and the graph itself needs a part.
_LARGEST_FILE = (1 << 31) - (1 << 24)
#: Bytes of a page: runtimes can map a tensor that begins at one instead of reading it.
_PAGE = 1 << 12
_CHUNK = 1 << 20
#: Types with the same bytes in memory and in a file.
_PLAIN = frozenset(
    {
        ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BOOL,
        ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
        ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
    }
)  # fmt: skip
#: The types of safetensors 0.4.3; a tensor of another type, such as int4, is stored as bytes.
_SAFETENSORS = {
    "BOOL": "BOOL", "INT8": "I8", "UINT8": "U8", "INT16": "I16", "UINT16": "U16", "INT32": "I32",
    "UINT32": "U32", "INT64": "I64", "UINT64": "U64", "FLOAT16": "F16", "BFLOAT16": "BF16",
    "FLOAT": "F32", "DOUBLE": "F64", "FLOAT8E4M3FN": "F8_E4M3", "FLOAT8E5M2": "F8_E5M2",
}  # fmt: skip
#: Since this IR version, an initializer need not be an input.
_IR_OF_INITIALIZERS = 4
#: The stable names of extra files by suffix; torch's own names contain the time.
_REPORT_NAMES = {".md": "report", ".pt2": "program"}


def write_artifact(
    ir_model: ir.Model,
    spec: ModelSpec,
    opset: int,
    job_folder: JobFolder,
    provenance: dict[str, str],
) -> Path:
    """Name, clean and write one model; return the complete `.onnx` file."""
    rename_inner_values(ir_model)
    order_inputs(ir_model, spec)
    name_axes(ir_model, spec)
    # Remove the metadata of torch: it contains paths and differs between checkouts.
    items: list[ir.Model | ir.Graph | ir.Function | ir.Node | ir.Value] = [ir_model]
    graphs: tuple[ir.Graph | ir.Function, ...] = (*ir_model.graphs(), *ir_model.functions.values())
    for graph in graphs:
        items += [graph, *graph.inputs]
        if isinstance(graph, ir.Graph):
            items += graph.initializers.values()
        for node in graph:
            items += [node, *node.outputs]
    for item in items:
        for key in [key for key in item.metadata_props if key.startswith("pkg.")]:
            del item.metadata_props[key]
        item.doc_string = None
    ir_model.metadata_props.update(spec.metadata)
    for key, value in sorted(provenance.items()):
        ir_model.metadata_props[f"exporter.{key}"] = value
    if spec.ir_version is not None:
        ir_model.ir_version = min(ir_model.ir_version, spec.ir_version)
    if spec.options.get("keep_initializers_as_inputs") or ir_model.ir_version < _IR_OF_INITIALIZERS:
        inputs = {value.name for value in ir_model.graph.inputs}
        for name, initializer in ir_model.graph.initializers.items():
            if name not in inputs:
                ir_model.graph.inputs.append(initializer)
    _move_weights_out(ir_model, spec, job_folder.path)
    path = job_folder.model(opset)
    with _create_file(job_folder.path) as temporary:
        data = ir.serde.serialize_model(ir_model).SerializeToString(deterministic=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    return path


def rename_exporter_reports(folder: Path, job_path: Path) -> list[str]:
    """Rename extra files of torch's exporter and return a note about them.

    Options such as `report` request these files.

    `job`: The folder of the job; paths in the note are relative to it. `folder` may not exist.
    """
    names: list[str] = []
    for path in sorted(item for item in folder.glob("*") if item.is_file()):
        stem = _REPORT_NAMES.get(path.suffix, path.stem)
        name, number = f"{stem}{path.suffix}", 1
        while name in names:
            number += 1
            name = f"{stem}-{number}{path.suffix}"
        path.replace(folder / name)
        names.append(name)
    if not names:
        return []
    return [
        f"the exporter also wrote {', '.join(names)}, in {folder.relative_to(job_path).as_posix()}"
    ]


@contextmanager
def _create_file(folder: Path) -> Iterator[Path]:
    """Yield a temporary path; the file is deleted unless it is renamed."""
    path = folder / f".{os.getpid()}.fresh"
    try:
        yield path
    finally:
        # On a full disk, an incomplete file would leave no room for the record.
        path.unlink(missing_ok=True)


def _move_weights_out(ir_model: ir.Model, spec: ModelSpec, folder: Path) -> None:
    """Move large initializers into a shared file with a name from their hash."""
    external_data = spec.options.get("external_data")  # if it is None, the size decides
    values = [
        value for value in ir_model.graph.initializers.values() if value.const_value is not None
    ]
    tensors = [value.const_value for value in values if value.const_value is not None]
    total = sum(tensor.nbytes for tensor in tensors)
    if external_data is False and total > _LARGEST_FILE:
        raise Failure(
            Stage.CONVERT,
            f"external_data = false: the model has {total / 1e9:.1f} GB of weights, the limit of "
            "one file is 2 GB; remove the option",
        )
    if external_data is False or (external_data is None and total <= _INLINE_LIMIT):
        return
    large = [
        (value, tensor)
        for value in values
        if (tensor := value.const_value) is not None
        and tensor.nbytes >= _TENSOR_LIMIT
        # External data cannot contain strings.
        and tensor.dtype is not ir.DataType.STRING
    ]
    if not large:
        return
    if spec.parameters is None:  # the contract's names stay
        rename_numbered_weights(ir_model, [value for value, _ in large])
    file_name, offsets = _store({str(value.name): tensor for value, tensor in large}, folder)
    for value, tensor in large:
        value.const_value = ir.ExternalTensor(
            file_name,
            offsets[str(value.name)],
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=str(value.name),
            base_dir=folder,
        )


def _store(tensors: Mapping[str, ir.TensorProtocol], folder: Path) -> tuple[str, dict[str, int]]:
    """Write the tensors into `weights-<hash>.safetensors`, unless it exists.

    Returns:
        The name of the file, and the offset of each tensor in it.
    """
    # Safetensors permits no holes, so the order aligns the tensors: every offset is a multiple of
    # the largest power of 2 in the size. So most matrices begin at pages, and runtimes map them.
    alignments = {name: min(each.nbytes & -each.nbytes, _PAGE) for name, each in tensors.items()}
    order = sorted(tensors, key=lambda name: (-alignments[name], name))
    owners = _find_equal_tensors(tensors, order)
    stored = [tensors[name] for name in order if name not in owners]
    header: dict[str, object] = {"__metadata__": owners} if owners else {}
    starts: dict[str, int] = {}
    end = 0
    for name, tensor in zip((name for name in order if name not in owners), stored, strict=True):
        starts[name], end = end, end + tensor.nbytes
        dtype = _SAFETENSORS.get(tensor.dtype.name)
        shape = tensor.shape.numpy() if dtype else (tensor.nbytes,)
        span = (starts[name], end)
        header[name] = {"dtype": dtype or "U8", "shape": shape, "data_offsets": span}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-(8 + len(text)) // _PAGE) * _PAGE - 8)
    first = memoryview(len(text).to_bytes(8, "little") + text)
    offsets = {name: len(first) + starts[owners.get(name, name)] for name in order}

    def iterate() -> Iterator[memoryview]:
        return chain([first], chain.from_iterable(map(_iterate_blocks, stored)))

    # Most opsets have the same weights, and a comparison takes a fifth of the time of a hash.
    for path in sorted(folder.glob(format_weights_name("*"))):
        status = path.lstat()
        is_candidate = stat.S_ISREG(status.st_mode) and status.st_size == len(first) + end
        if is_candidate and _has_content(path, iterate()):
            return path.name, offsets
    digest = hashlib.sha256()
    with _create_file(folder) as temporary:
        with temporary.open("wb") as file:
            for block in iterate():
                digest.update(block)
                file.write(block)
        file_name = format_weights_name(digest.hexdigest())
        temporary.replace(folder / file_name)
    return file_name, offsets


def _find_equal_tensors(
    tensors: Mapping[str, ir.TensorProtocol], order: Sequence[str]
) -> dict[str, str]:
    """Return the first tensor with the same content for each tensor that is not the first one.

    The metadata of `safetensors.torch.save_model` has the same form.
    """
    owners: dict[str, str] = {}
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in order:
        tensor = tensors[name]
        first_values = tensor.numpy().flat[:_TENSOR_LIMIT].tobytes()
        group = groups.setdefault((tensor.dtype, *tensor.shape.numpy(), first_values), [])
        for other in group:
            pairs = zip(_iterate_blocks(tensor), _iterate_blocks(tensors[other]), strict=True)
            if all(np.array_equal(block, other_block) for block, other_block in pairs):
                owners[name] = other
                break
        else:
            group.append(name)
    return owners


def _has_content(path: Path, blocks: Iterator[memoryview]) -> bool:
    stored, start = np.memmap(path, np.uint8, mode="r"), 0
    for block in blocks:
        end = start + len(block)
        if not np.array_equal(stored[start:end], np.frombuffer(block, np.uint8)):
            return False
        start = end
    return True


def _iterate_blocks(tensor: ir.TensorProtocol) -> Iterator[memoryview]:
    if isinstance(tensor, ir.Tensor) and tensor.dtype in _PLAIN and sys.byteorder == "little":
        # The memory of the tensor has the bytes of the file, so no copy is needed.
        data = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data
    else:
        data = memoryview(tensor.tobytes())
    for first in range(0, len(data), _CHUNK):
        yield data[first : first + _CHUNK]


def copy_artifact(
    spec: ModelSpec, opset: int, root: Path, job_folder: JobFolder
) -> tuple[str, ...]:
    """Copy the file of one opset with its external data, and return a note about its origin.

    Raises:
        Failure: At stage `convert`, if the file or its external data cannot be read.
    """
    name = spec.find_artifact(opset)
    try:
        proto = copy_file(root / name, job_folder.model(opset))
    except UnreadableModel as error:
        message = format_message(f"artifact: {error}; correct the path or create the file again")
        raise Failure(Stage.CONVERT, message) from None
    producer = f"{proto.producer_name} {proto.producer_version}".strip()
    return (f"the file is {name}, {f'written by {producer}' if producer else 'of unknown origin'}",)


def copy_file(source: Path, target: Path) -> onnx.ModelProto:
    """Copy a file with its external data, which get names from their hashes; return the model.

    Raises:
        UnreadableModel: If the file or its external data cannot be read.
    """
    proto = read_model(source)
    problems = (
        *find_external_data_problems(proto, source.parent),
        *find_link_problems(proto, source.parent),
    )
    if problems:
        raise UnreadableModel(f"{source.name}: {'; '.join(problems)}")
    for link in list_links(proto):
        file = source.with_name(link.file)
        for name in (link.file, *list_external_files(read_model(file))):
            shutil.copyfile(source.with_name(name), target.with_name(name))
    if names := list_external_files(proto):
        new_names = {}
        for each in names:
            digest, is_safetensors = hash_file(source.parent / each), each.endswith(".safetensors")
            new_names[each] = format_weights_name(digest, is_safetensors=is_safetensors)
            shutil.copyfile(source.parent / each, target.parent / new_names[each])
        rename_external_files(proto, new_names)
        target.write_bytes(proto.SerializeToString(deterministic=True))
    else:
        shutil.copyfile(source, target)
    return proto
