"""Split references to tensor files: `x.npy`, `x.pb`, `x.npz:key`, `x.safetensors:key`."""

from __future__ import annotations

#: Suffixes of tensor files, and whether the file contains several tensors, each with a key.
DATA_SUFFIXES = {".npy": False, ".pb": False, ".npz": True, ".safetensors": True}
#: Suffixes of pictures, in lower case.
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def split_data_file(text: str) -> tuple[str, str]:
    """Return path and key of `"data/x.npz:key"`; the key is "" if the text has none."""
    for suffix in DATA_SUFFIXES:
        path, separator, key = text.partition(f"{suffix}:")
        if separator:
            return path + suffix, key
    return text, ""
