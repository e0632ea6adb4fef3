"""Tensors from files: numpy's npy and npz, ONNX's pb, safetensors.

In: a folder and what a manifest says: `data/x.npz:key`. Out: the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from exporter.core.errors import suggest_nearest
from exporter.manifest import Input
from exporter.manifest.syntax.tensor_files import split_data_file
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure


def read_tensor(folder: Path, text: str) -> torch.Tensor:
    """The tensor that `text` names.

    Args:
        folder: What the path in it is relative to.
        text: `x.npy`, `x.pb`, `x.npz:key` or `x.safetensors:key`.

    Raises:
        Failure: of stage `source`, where the file cannot be read or has no such tensor.
    """
    place, key = split_data_file(text)
    path = folder / place
    try:
        match path.suffix:
            case ".npy":
                return _from_numpy(np.load(path, allow_pickle=False))
            case ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    _require(key, arrays.files, place)
                    return _from_numpy(arrays[key])
            case ".pb":
                return _from_numpy(numpy_helper.to_array(onnx.load_tensor(path)))
            case _:
                return _from_safetensors(path, key, place)
    except Failure:
        raise
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, DecodeError) as error:
        what = str(error).splitlines()[0].replace(str(path), place) if str(error) else ""
        message = f"{place} cannot be read: {what or type(error).__name__}"
        raise Failure(Stage.SOURCE, message) from error


def fit_to_shape(tensor: torch.Tensor, item: Input, shape: Sequence[int]) -> torch.Tensor:
    """The tensor at other sizes of the axes of `item`: cut, or repeated from the first."""
    if tensor.dim() != len(shape):
        return tensor
    for index, (dim, size) in enumerate(zip(item.shape, shape, strict=True)):
        present = tensor.shape[index]
        if isinstance(dim, str) and present and size != present:
            tensor = tensor.index_select(index, torch.arange(size) % present)
    return tensor


def _from_safetensors(path: Path, key: str, place: str) -> torch.Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as tensors:
            _require(key, list(tensors.keys()), place)
            found: torch.Tensor = tensors.get_tensor(key)
            return found
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _require(key: str, known: Sequence[str], place: str) -> None:
    if key not in known:
        there = suggest_nearest(key, known) or f"; it has {', '.join(sorted(known)[:5])}"
        raise Failure(Stage.SOURCE, f"{place} has no tensor '{key}'{there}")


def _from_numpy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    if array.dtype.hasobject or array.dtype.kind not in "biufc":
        raise TypeError(f"{array.dtype} is no dtype of a tensor")
    # torch takes numbers in the machine's own byte order only, in memory that it may write to.
    native = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(native)
