"""Weights that lie outside the file: there, whole, and in the file's own folder.

In: a model and the folder of its file. Out: what is wrong, in words, and which files are used. Only
names and sizes are looked at. (`onnx.checker` accepts a file that was cut short.)

Source of the rules: ONNX, docs/ExternalData.md, and the refusals of `onnx.load`, which takes no
links: a link may lead out of the folder, and does not travel with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import ModelProto, TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.checks.files.graph_walk import all_tensors

#: Types of which several share a byte, and how many do.
_PACKED = {"UINT4": 2, "INT4": 2, "FLOAT4E2M1": 2, "UINT2": 4, "INT2": 4}
#: Tensors up to this size stay inside: shape inference and optimisers read them.
_SMALL = 1 << 11


def external_files(model: ModelProto) -> tuple[str, ...]:
    """The locations that the model names, sorted, each once."""
    found = {_entries(t).get("location", "") for t in all_tensors(model) if _is_external(t)}
    return tuple(sorted(found))


def external_data_problems(model: ModelProto, folder: Path) -> Iterator[str]:
    """What is wrong with the data outside the file; each file's own fault is named once."""
    broken: dict[str, str] = {}
    for tensor in all_tensors(model):
        if not _is_external(tensor):
            continue
        location = _entries(tensor).get("location", "")
        if location not in broken:
            broken[location] = _file_problem(location, folder)
            if broken[location]:
                yield broken[location]
        if not broken[location] and (problem := _range_problem(tensor, folder / location)):
            yield f"tensor '{tensor.name}' {problem}"


def misplaced(model: ModelProto, wish: object) -> Iterator[str]:
    """Where weights lie elsewhere than the option `external_data` says.

    Args:
        model: The file.
        wish: True, False, or None, which leaves it to the exporter.
    """
    outside = [tensor.name for tensor in model.graph.initializer if _is_external(tensor)]
    if wish is False and outside:
        yield f"external_data = false, and {len(outside)} tensors lie outside: {outside[0]}"
    if wish is True and not outside:
        inside = [tensor for tensor in model.graph.initializer if tensor.ByteSize() > _SMALL]
        if inside:
            yield f"external_data = true, and {len(inside)} large tensors lie inside"


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _file_problem(location: str, folder: Path) -> str:
    if not location:
        return "external data has no location"
    if _leaves_folder(location):
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


def _leaves_folder(location: str) -> bool:
    """On any system: the set of files travels."""
    windows = PureWindowsPath(location)
    parts = (*PurePosixPath(location).parts, *windows.parts)
    return bool(windows.anchor) or location.startswith("/") or ".." in parts


def _range_problem(tensor: TensorProto, path: Path) -> str:
    entries = _entries(tensor)
    try:
        offset = int(entries.get("offset", "0"))
        needed = _bytes_of(tensor)
        length = int(entries.get("length", needed))
    except (ValueError, KeyError):
        return "has an offset, length or type that cannot be read"
    if offset < 0 or length < 0:
        return f"has offset {offset} and length {length}"
    if length != needed:
        return f"has {length} bytes outside, its shape and type need {needed}"
    size = path.stat().st_size
    if offset + length > size:
        return f"ends at byte {offset + length} of '{path.name}', which has {size}"
    return ""


def _bytes_of(tensor: TensorProto) -> int:
    count: int = math.prod(tensor.dims)
    packed = _PACKED.get(TensorProto.DataType.Name(tensor.data_type))
    if packed:
        return -(-count // packed)
    return count * tensor_dtype_to_np_dtype(tensor.data_type).itemsize
