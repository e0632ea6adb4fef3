"""Dtypes of ONNX by the names that PyTorch has for them.

In: an element type of `TensorProto`. Out: its name.
"""

from __future__ import annotations

from onnx import TensorProto


def dtype_name(elem_type: int) -> str:
    """The dtype by PyTorch's name, other types of ONNX by theirs in lower case."""
    try:
        name = str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"of unknown type {elem_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)
