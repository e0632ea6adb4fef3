"""Keys that people expect in a table, and the key to use instead."""

from __future__ import annotations

from collections.abc import Mapping

_PRECISION = 'use `precision = "float16"`'
_TOLERANCE = "use `tolerance = { atol = 1e-4 }`"

_DYNAMIC = "use names instead of sizes in `shape`"
_NAME = 'write a name for a dynamic axis, such as "batch"'
#: Words of `torch.export.Dim` in place of a dimension, by the last part of the word.
DIM_WORDS: Mapping[str, str] = {
    "AUTO": f"{_NAME}, or a size: a manifest promises one of the two",
    "DYNAMIC": _NAME,
    "STATIC": "write the size",
}

#: Words in `[models.ID]` and `[defaults]`, in addition to the arguments of `torch.onnx.export`.
MODEL_KEYS: Mapping[str, str] = {
    "args": "use `init` for the call of the source, `inputs` and `constants` for the model's",
    "kwargs": "use `init` for the call of the source, `inputs` with `at` for the model's",
    "atol": _TOLERANCE,
    "rtol": _TOLERANCE,
    "checkpoint": "use `weights`",
    "device": 'use `devices = ["cpu"]`, and `export_device` for PyTorch',
    "dtype": _PRECISION,
    "fp16": _PRECISION,
    "half": _PRECISION,
    "dynamic": _DYNAMIC,
    "strict": "use `capture = 'strict'`",
    "name": "the ID is the name of the table: `[models.ID]`",
    "runtime": "use `devices`, and `[tool.exporter.devices.NAME]` with `runtime`",
}
#: The same for an item of `inputs`.
INPUT_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("min", "max"), "use `fill` for limits of values, `axes.NAME` for sizes"),
    **dict.fromkeys(("low", "high"), "use `fill = { uniform = [0, 1] }` or `randint`"),
    **dict.fromkeys(("data", "value", "values"), "use `fill = { value = 3 }` or `{ file = ... }`"),
    **dict.fromkeys(("dynamic", "dynamic_axes", "dynamic_shapes"), _DYNAMIC),
    "path": "use `fill = { file = ... }` for values, `at` for the place in the call",
    "size": "use `shape`",
    "type": "use `dtype`",
}
#: The same for an item of `outputs`.
OUTPUT_KEYS: Mapping[str, str] = {
    "atol": _TOLERANCE,
    "rtol": _TOLERANCE,
    **dict.fromkeys(("dynamic", "dynamic_axes", "dynamic_shapes"), _DYNAMIC),
    "size": "use `shape`",
    "type": "use `dtype`",
}
#: The same for an item of `axes`.
AXIS_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("auto", "dim", "dynamic", "static"), "use a name or a size in `shape`"),
    "size": "use `example`",
}


def find_dim_advice(text: str) -> str:
    """Return the advice for a word of `torch.export.Dim`, or ""."""
    prefix, _, word = text.rpartition(".")
    is_word = prefix in ("Dim", "torch.export.Dim") and word in DIM_WORDS
    return DIM_WORDS[word] if is_word else ""
