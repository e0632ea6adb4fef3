"""Files of tensors as manifests name them: `x.npy`, `x.pb`, `x.npz:key`, `x.safetensors:key`.

In: the text of a manifest. Out: the path and the key in it. Nothing is opened here.
"""

from __future__ import annotations

#: Endings of files that hold tensors, and whether a key says which.
DATA_SUFFIXES = {".npy": False, ".pb": False, ".npz": True, ".safetensors": True}


def split_data_file(text: str) -> tuple[str, str]:
    """`"data/x.npz:key"` as `("data/x.npz", "key")`; the key is empty where there is none."""
    for suffix in DATA_SUFFIXES:
        path, mark, key = text.partition(f"{suffix}:")
        if mark:
            return path + suffix, key
    return text, ""
