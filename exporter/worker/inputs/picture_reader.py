"""Reader for pictures and other files, as the input of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from exporter.manifest import Fill
from exporter.records.record import Stage
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.inputs.tensor_reader import read_tensor
from exporter.worker.process.failure import Failure

_LARGEST = 255


def read_fill(folder: Path, fill: Fill, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of a file as it is, or a picture at this shape.

    Raises:
        Failure: Stage `source`, if the file cannot be read.
    """
    if fill.kind == "file":
        return read_tensor(folder, fill.file)
    return read_picture(folder, fill, shape, dtype)


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
    try:
        with Image.open(folder / fill.file) as picture:
            scaled = picture.convert(mode).resize((width, height), Image.Resampling.BICUBIC)
    except UnidentifiedImageError as error:
        message = f"{fill.file}: the file is no picture that Pillow reads; use another file"
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
