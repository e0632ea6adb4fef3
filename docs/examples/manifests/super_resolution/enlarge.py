"""Enlarge a picture with the exported file: `python enlarge.py FILE.onnx IN.png OUT.png`.

It also prints the PSNR against an enlargement by Pillow.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import onnxruntime
from PIL import Image


def enlarge(file: str, source: str, target: str) -> float:
    """Write the enlarged picture, and return the PSNR of its luma in dB."""
    with Image.open(source) as small:
        luma, *colors = small.convert("YCbCr").split()
    values = np.asarray(luma, np.float32)[None, None] / 255
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"luma": values})
    enlarged = Image.fromarray(np.uint8(np.clip(output[0, 0] * 255, 0, 255).round()))
    others = [color.resize(enlarged.size, Image.Resampling.BICUBIC) for color in colors]
    Image.merge("YCbCr", [enlarged, *others]).convert("RGB").save(target)
    bicubic = np.asarray(luma.resize(enlarged.size, Image.Resampling.BICUBIC), np.float64)
    error = np.square(bicubic - np.asarray(enlarged, np.float64)).mean()
    return 10 * math.log10(255**2 / error)


if __name__ == "__main__":
    print(f"PSNR {enlarge(*sys.argv[1:4]):.1f} dB")
