"""Private parts of tensors and operators: schemas, write counters, modes of the dispatcher.

torch documents `TorchDispatchMode` and `TracerWarning`, but keeps them in private modules.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.jit._trace import TracerWarning
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "TorchDispatchMode",
    "TracerWarning",
    "count_writes",
    "create_fake_mode",
    "is_fake",
    "read_schema",
]


def read_schema(operator: Any) -> Any:
    """Return the schema of an operator, a `torch.FunctionSchema`."""
    return operator._schema


def count_writes(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written, or 0 if torch does not count its writes."""
    return 0 if tensor.is_inference() else int(getattr(tensor, "_version", 0))


def is_fake(value: Any) -> bool:
    """Return True if a tensor has a shape and a dtype, but no values."""
    return isinstance(value, FakeTensor)


def create_fake_mode() -> AbstractContextManager[Any]:
    """Return a mode in which operators compute shapes and dtypes, but no values."""
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
