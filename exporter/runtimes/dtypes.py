"""The names of ONNX dtypes."""

from __future__ import annotations

from onnx import TensorProto


def format_dtype(elem_type: int) -> str:
    """Return PyTorch's name of the dtype, or ONNX's in lower case if PyTorch has none."""
    try:
        name = str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"of unknown type {elem_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)
