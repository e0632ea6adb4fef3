"""A captured model: a `torch.export.ExportedProgram` from a file or from code."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram

from exporter.worker.torch_private import pytree

_PROGRAM = "_exporter_program"
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_ASSERTION = "aten._assert_tensor_metadata.default"


def convert_to_module(program: ExportedProgram) -> torch.nn.Module:
    """Return a module that runs the program; `find_program` returns the program again."""
    module = program.module()
    # `__setattr__` is for parameters and submodules.
    vars(module)[_PROGRAM] = program
    return module


def find_program(model: object) -> ExportedProgram | None:
    """Return the program of a model, or None if the model is no captured program."""
    program = getattr(model, "__dict__", {}).get(_PROGRAM)
    return program if isinstance(program, ExportedProgram) else None


def build_float64_module(program: ExportedProgram) -> torch.nn.Module:
    """Return a copy that computes in float64 only.

    The casts and assertions of a captured program have fixed dtypes, even if the code of the
    model was `x.to(y.dtype)`.
    """
    # The module shares its weights with the program, so copy the module.
    module = copy.deepcopy(program.module())
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if str(node.target) == _ASSERTION:
                part.graph.erase_node(node)
            else:
                node.args = pytree.tree_map(_widen_dtype, node.args)
                node.kwargs = pytree.tree_map(_widen_dtype, node.kwargs)
        part.recompile()
    return module.double()


def _widen_dtype(value: Any) -> Any:
    return torch.float64 if value in _NARROW else value


def order_leaves(program: ExportedProgram, args: Any, kwargs: Any) -> list[Any] | None:
    """Return the leaves of a call in the order of the program's inputs.

    Args:
        program: The captured program.
        args: The positional arguments, with any objects instead of tensors.
        kwargs: The keyword arguments in any order.

    Returns:
        None if the call has another structure than the program's.
    """
    spec = program.call_spec.in_spec
    if spec is None:
        return None
    numbered = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    indices = {
        pytree.keystr(path): int(index)
        for path, index in pytree.tree_flatten_with_path(numbered)[0]
    }
    leaves = {
        pytree.keystr(path): leaf
        for path, leaf in pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    }
    if indices.keys() != leaves.keys():
        return None
    return [leaves[path] for path in sorted(indices, key=indices.__getitem__)]
