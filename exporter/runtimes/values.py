"""The outputs of an ONNX model: tensors, and sequences of tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]
#: A sequence is a list, even with one item or none.
OnnxValue: TypeAlias = "Array | list[Array]"


def list_items(value: OnnxValue) -> list[Array]:
    """Return the items of a sequence, or a list with the tensor."""
    return value if isinstance(value, list) else [value]
