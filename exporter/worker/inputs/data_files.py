"""Inputs from data files: stored tensors and pictures, fitted to the sizes of a sample."""

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
from exporter.manifest import Fill, Input, ModelSpec
from exporter.manifest.syntax.values import IMAGE_SUFFIXES, split_data_file
from exporter.records.record import Stage
from exporter.worker.inputs.call import from_numpy
from exporter.worker.process.failure import Failure


def read_tensor(folder: Path, text: str) -> torch.Tensor:
    """Return the tensor that a manifest names.

    `text`: `x.npy`, `x.pb`, `x.npz:key` or `x.safetensors:key`.

    Raises:
        Failure: Stage `source`, if the file is not readable or has no such tensor.
    """
    name, key = split_data_file(text)
    path = folder / name
    try:
        match path.suffix:
            case ".npy":
                return _convert_array(np.load(path, allow_pickle=False))
            case ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    _require_key(key, arrays.files, name)
                    return _convert_array(arrays[key])
            case ".pb":
                return _convert_array(numpy_helper.to_array(onnx.load_tensor(path)))
            case _:
                return _read_safetensors(path, key, name)
    except Failure:
        raise
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, DecodeError) as error:
        reason = str(error).splitlines()[0].replace(str(path), name) if str(error) else ""
        message = f"{name}: the file cannot be read: {reason or type(error).__name__}"
        raise Failure(Stage.SOURCE, message) from error


def _read_safetensors(path: Path, key: str, name: str) -> torch.Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as tensors:
            _require_key(key, list(tensors.keys()), name)
            tensor: torch.Tensor = tensors.get_tensor(key)
            return tensor
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _require_key(key: str, known: Sequence[str], name: str) -> None:
    if key not in known:
        hint = suggest_nearest(key, known) or f"; it has {', '.join(sorted(known)[:5])}"
        raise Failure(Stage.SOURCE, f"{name} has no tensor '{key}'{hint}")


def _convert_array(array: object) -> torch.Tensor:
    if not isinstance(array, np.ndarray):  # an archive may have any members
        raise TypeError("it is no array")
    if array.dtype.name != "bfloat16":
        if array.dtype.hasobject or array.dtype.kind not in "biufc":
            raise TypeError(f"the dtype {array.dtype} is not a dtype of tensors")
        # torch accepts the byte order of this machine only.
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return from_numpy(array)


def resolve_file_sizes(spec: ModelSpec, root: Path) -> ModelSpec:
    """Return the contract with the sizes of files as the examples of their axes.

    A file of one row is repeated instead: exporters turn the size 1 into a constant.

    Raises:
        Failure: Stage `source`, if a file is not readable.
    """
    free = {axis.name: axis for axis in spec.free_axes}
    sizes = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
    for item in spec.inputs:
        if item.fill.kind == "file":
            tensor = read_tensor((root / spec.manifest).parent, item.fill.file)
            pairs = zip(map(str, item.shape), tensor.shape, strict=False)
            sizes |= {dim: n for dim, n in pairs if dim in free and n > 1 and free[dim].allows(n)}
    complete = spec.complete_sizes(sizes)
    axes = (
        axis if axis.example is None else axis.model_copy(update={"example": complete[axis.name]})
        for axis in spec.axes
    )
    return spec.model_copy(update={"axes": tuple(axes)}) if spec.allows_sizes(complete) else spec


def fit_to_shape(tensor: torch.Tensor, item: Input, shape: Sequence[int]) -> torch.Tensor:
    """Return the tensor at other axis sizes: cut, or repeated from its first element."""
    if tensor.dim() != len(shape):
        return tensor
    for index, (dim, size) in enumerate(zip(item.shape, shape, strict=True)):
        current = tensor.shape[index]
        if isinstance(dim, str) and current and size != current:
            tensor = tensor.index_select(index, torch.arange(size) % current)
    return tensor


_LARGEST = 255


def read_picture(
    folder: Path, fill: Fill, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Return the picture with the channels before height and width.

    Args:
        folder: The folder of the relative path.
        fill: The file and its mode.
        shape: `[..., channels, height, width]`, or `[height, width]` for one channel.
        dtype: Floats are from 0 to 1, integers from 0 to 255.

    Raises:
        Failure: Stage `source`, if the file is no picture or Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        message = "a fill with `image` needs the package Pillow; install it: pip install pillow"
        raise Failure(Stage.SOURCE, message) from error
    height, width = shape[-2:]
    mode = "YCbCr" if fill.mode == "Y" else fill.mode
    known = Image.registered_extensions().items()
    # Pillow would open others with programs of the system, such as EPS with Ghostscript.
    formats = [name for suffix, name in known if suffix in IMAGE_SUFFIXES]
    try:
        with Image.open(folder / fill.file, formats=formats) as picture:
            scaled = picture.convert(mode).resize((width, height), Image.Resampling.BICUBIC)
    except UnidentifiedImageError as error:
        message = (
            f"{fill.file}: the file is no picture in a format that `image` accepts; convert it"
        )
        raise Failure(Stage.SOURCE, message) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        message = f"{fill.file}: the picture cannot be read: {error}; write it again"
        raise Failure(Stage.SOURCE, message) from error
    pixels = from_numpy(np.array(scaled)).reshape(height, width, -1).permute(2, 0, 1)
    channels = pixels[:1] if fill.mode == "Y" else pixels
    values = channels.to(torch.float64) / _LARGEST if dtype.is_floating_point else channels
    # One channel also fits a shape without channels.
    fitted = values[0] if len(shape) == 2 else values
    return fitted.to(dtype).expand(tuple(shape)).contiguous()
