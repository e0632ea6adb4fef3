"""The reader of an ONNX file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.core.files import TENSOR_LIMIT, hash_file, read_regular_file
from exporter.jobs import is_weights_name
from exporter.records.record import Artifact
from exporter.runtimes.chain import LinkFile, list_links
from exporter.runtimes.graph_walk import (
    iter_initializers,
    iter_nodes,
    iter_tensors,
    normalize_domain,
)


class UnreadableModel(Exception):
    """The file is missing or is not an ONNX file."""


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model without its external data.

    Raises:
        UnreadableModel: if the file cannot be read; its message contains no path of this machine.
    """
    try:
        # A sparse file of terabytes is no model.
        content = read_regular_file(path, TENSOR_LIMIT, may_be_link=True)
        return onnx.load_model_from_string(content)
    except OSError as error:
        raise UnreadableModel(f"{path.name}: cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError) as error:
        raise UnreadableModel(f"{path.name}: is not an ONNX file, cannot be parsed") from error


#: Weights are floats. Shapes and indices that an exporter stores are integers.
_FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)


def measure_artifact(path: Path, model_id: str) -> Artifact:
    """Return the properties of one file, with its external data in the same folder.

    `model_id`: The final folder of the model inside the build folder.

    Raises:
        UnreadableModel: if the file is missing or is not an ONNX file.
    """
    proto = read_model(path)
    if links := list_links(proto):
        return _measure_chain(path, model_id, proto, links)
    return _measure_file(path, model_id, proto)


def _measure_file(path: Path, model_id: str, proto: onnx.ModelProto) -> Artifact:
    names = list_external_files(proto)
    external = [path.parent / name for name in names]
    imports = {normalize_domain(item.domain): item.version for item in proto.opset_import}
    operators: Counter[str] = Counter()
    for node in iter_nodes(proto):
        domain = normalize_domain(node.domain)
        operators[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    return Artifact(
        file=f"{model_id}/{path.name}",
        sha256=hash_file(path),
        bytes=path.stat().st_size + sum(file.stat().st_size for file in external if file.is_file()),
        external_data=names,
        ir_version=proto.ir_version,
        opset_imports=dict(sorted(imports.items())),
        nodes=operators.total(),
        parameters=sum(
            math.prod(tensor.dims)
            for tensor in iter_initializers(proto)
            if tensor.data_type in _FLOATS
        ),
        operators=dict(sorted(operators.items())),
    )


def _measure_chain(
    path: Path, model_id: str, proto: onnx.ModelProto, links: Sequence[LinkFile]
) -> Artifact:
    """Return the properties of a chain: those of its links together."""
    names = sorted({link.file for link in links})
    paths = {name: path.parent / name for name in names}
    files = {name: _measure_file(each, model_id, read_model(each)) for name, each in paths.items()}
    data = sorted({name for each in files.values() for name in each.external_data})
    imports: dict[str, int] = {}
    operators: Counter[str] = Counter()
    for link in links:
        operators.update(files[link.file].operators)
        for domain, version in files[link.file].opset_imports.items():
            imports[domain] = max(version, imports.get(domain, 0))
    return Artifact(
        file=f"{model_id}/{path.name}",
        sha256=hash_file(path),
        bytes=sum((path.parent / name).stat().st_size for name in (path.name, *names, *data)),
        external_data=(*names, *data),
        ir_version=proto.ir_version,
        opset_imports=dict(sorted(imports.items())),
        nodes=sum(each.nodes for each in files.values()),
        parameters=sum(each.parameters for each in files.values()),
        operators=dict(sorted(operators.items())),
    )


def find_link_problems(proto: ModelProto, folder: Path) -> Iterator[str]:
    """Yield the problems of the files of a chain's links; there are none in another file."""
    for link in list_links(proto):
        path = folder / link.file
        subject = f"the file of the link '{link.id}', {link.file},"
        if PurePosixPath(link.file).name != link.file or not path.is_file() or path.is_symlink():
            yield f"{subject} is missing"
        elif not is_weights_name(link.file, hash_file(path)):
            yield f"{subject} is not the file that was proved"
        else:
            external = find_external_data_problems(read_model(path), folder)
            yield from (f"{subject}: {problem}" for problem in external)


#: Packed types -> values in one byte.
_PACKED = {"UINT4": 2, "INT4": 2, "FLOAT4E2M1": 2, "UINT2": 4, "INT2": 4}
#: Bytes of a tensor that stays inside: shape inference and optimizers read it.
_MAX_INSIDE = 1 << 11


def list_external_files(proto: ModelProto) -> tuple[str, ...]:
    """Return the sorted locations of external data, each once."""
    tensors = (tensor for tensor in iter_tensors(proto) if _is_external(tensor))
    return tuple(sorted({_read_entries(tensor).get("location", "") for tensor in tensors}))


def rename_external_files(proto: ModelProto, names: Mapping[str, str]) -> None:
    """Replace each location of external data by its new name."""
    for tensor in iter_tensors(proto):
        if _is_external(tensor):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = names[entry.value]


def find_external_data_problems(proto: ModelProto, folder: Path) -> Iterator[str]:
    """Yield the problems of external data; a problem of a file appears once."""
    file_problems: dict[str, str] = {}
    for tensor in iter_tensors(proto):
        if not _is_external(tensor):
            continue
        location = _read_entries(tensor).get("location", "")
        if location not in file_problems:
            file_problems[location] = _find_file_problem(location, folder)
            if file_problems[location]:
                yield file_problems[location]
        if not file_problems[location]:
            problem = _find_range_problem(tensor, folder / location)
            if problem:
                yield f"tensor '{tensor.name}' {problem}"


def find_misplaced_weights(proto: ModelProto, option: object) -> Iterator[str]:
    """Yield a problem if weights are not where the option `external_data` requires.

    `option`: True, False, or None if the exporter decides.
    """
    outside = [tensor.name for tensor in proto.graph.initializer if _is_external(tensor)]
    if option is False and outside:
        yield f"external_data = false, but {len(outside)} tensors are external: {outside[0]}"
    if option is True and not outside:
        sizes = (tensor.ByteSize() for tensor in proto.graph.initializer)
        if inside := sum(size > _MAX_INSIDE for size in sizes):
            yield f"external_data = true, but {inside} large tensors are inside the file"


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _read_entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _find_file_problem(location: str, folder: Path) -> str:
    """Return the problem of a location, or "" if its file is usable."""
    if not location:
        return "external data has no location"
    windows = PureWindowsPath(location)
    parts = (*PurePosixPath(location).parts, *windows.parts)
    # Checked for all systems, because the files are copied between them.
    if windows.anchor or location.startswith("/") or ".." in parts:
        return f"external data '{location}' is not inside the file's folder"
    path = folder / location
    inside = [path, *path.parents][: len(path.relative_to(folder).parts)]
    if any(part.is_symlink() for part in inside):
        return f"external data '{location}' is a link"
    if not path.is_file():
        return f"external data '{location}' is missing"
    if path.stat().st_nlink > 1:
        return f"external data '{location}' has more than one hard link"
    return ""


def _find_range_problem(tensor: TensorProto, path: Path) -> str:
    """Return the problem of a tensor's bytes in its file, or "" if all exist."""
    entries = _read_entries(tensor)
    count: int = math.prod(tensor.dims)
    try:
        offset = int(entries.get("offset", "0"))
        if packed := _PACKED.get(TensorProto.DataType.Name(tensor.data_type)):
            needed = -(-count // packed)
        else:
            needed = count * tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        length = int(entries.get("length", needed))
    except (ValueError, KeyError):
        return "has an offset, length or type that cannot be read"
    if offset < 0 or length < 0:
        return f"has offset {offset} and length {length}"
    if length != needed:
        return f"has {length} external bytes, its shape and type need {needed}"
    size = path.stat().st_size
    if offset + length > size:
        return f"ends at byte {offset + length} of '{path.name}', which has {size}"
    return ""
