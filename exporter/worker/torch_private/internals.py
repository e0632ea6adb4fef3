"""Private parts of tensors, modules and trees of values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.jit._trace import TracerWarning
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import (
    MappingKey,
    TreeSpec,
    keystr,
    register_pytree_node,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
)

__all__ = [
    "TorchDispatchMode",
    "TracerWarning",
    "TreeSpec",
    "count_writes",
    "create_fake_mode",
    "has_interpreted_bytecode",
    "is_fake",
    "keystr",
    "read_schema",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "tree_unflatten",
]


def has_interpreted_bytecode() -> bool:
    """Return True if Dynamo read the bytecode of a function in this process."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return module is not None and getattr(module, "FRAME_COUNTER", 1) > 0


def read_schema(operator: Any) -> Any:
    """Return the schema of an operator, a `torch.FunctionSchema`."""
    return operator._schema


def register_mapping(kind: type[Mapping[Any, Any]]) -> None:
    """Let torch flatten the objects of a class as it flattens dicts."""

    def flatten(value: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
        return [*value.values()], [*value]

    def flatten_with_keys(value: Mapping[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
        return [(MappingKey(key), item) for key, item in value.items()], [*value]

    register_pytree_node(
        kind,
        flatten,
        lambda values, keys: dict(zip(keys, values, strict=True)),
        flatten_with_keys_fn=flatten_with_keys,
    )


def find_decomposition(operator: Any) -> Callable[..., Any] | None:
    """Return a function that computes an operator by simpler ones, if torch has one."""
    from torch._decomp import decomposition_table  # a slow import, which a review needs only

    return decomposition_table.get(operator)


def count_writes(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written, or 0 if torch does not count its writes."""
    return 0 if tensor.is_inference() else int(getattr(tensor, "_version", 0))


def is_fake(value: Any) -> bool:
    """Return True if a tensor has a shape and a dtype, but no values."""
    return isinstance(value, FakeTensor)


def create_fake_mode() -> AbstractContextManager[Any]:
    """Return a mode in which operators compute shapes and dtypes, but no values."""
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


_NAMES = ("_forward_pre_hooks", "_forward_hooks")


@contextmanager
def restore_module_hooks(model: nn.Module) -> Iterator[None]:
    """Remove the hooks that the modules of a model get inside the context.

    `export_modules_as_functions` adds two hooks to every module. If an earlier export added them
    too, the next one fails with an internal assertion.
    """
    tables: list[dict[int, Any]] = [
        table
        for module in model.modules()
        for name in _NAMES
        if isinstance(table := vars(module).get(name), dict)
    ]
    before = [set(table) for table in tables]
    try:
        yield
    finally:
        for table, keys in zip(tables, before, strict=True):
            for key in [key for key in table if key not in keys]:
                del table[key]
