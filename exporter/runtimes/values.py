"""What an ONNX model puts out: tensors, and sequences of tensors.

In: nothing. Out: their types, and a view of either as a list.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]
#: A sequence is a list, also where it has one item or none.
OnnxValue: TypeAlias = "Array | list[Array]"


def items_of(value: OnnxValue) -> list[Array]:
    """The items of a sequence; of a tensor, itself."""
    return value if isinstance(value, list) else [value]
