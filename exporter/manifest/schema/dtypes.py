"""The dtypes of a manifest, and other common names for them in messages."""

from __future__ import annotations

from exporter.core.errors import suggest_nearest
from exporter.manifest.syntax.message_format import format_value, unexpected_value

DTYPES = (
    "float32", "float16", "bfloat16", "float64",
    "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip

#: Other common names of dtypes, for suggestions.
_DTYPE_ALIASES = {
    "float": "float32", "half": "float16", "double": "float64", "fp32": "float32",
    "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "f32": "float32", "f16": "float16",
    "long": "int64", "int": "int32", "short": "int16", "byte": "uint8", "char": "int8",
    "boolean": "bool", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


def check_dtype(value: object) -> str:
    """Return the name of a dtype.

    Raises:
        ValueError: If PyTorch has no such dtype, with the nearest name.
    """
    if not isinstance(value, str):
        raise unexpected_value("the name of a dtype", value)
    if value in DTYPES:
        return value
    bare = value.removeprefix("torch.").lower()
    similar = bare if bare in DTYPES else _DTYPE_ALIASES.get(bare)
    hint = f"; did you mean '{similar}'?" if similar else suggest_nearest(bare, DTYPES)
    raise ValueError(f"PyTorch has no dtype {format_value(value)}{hint}")
