"""A model that is captured already: a `torch.export.ExportedProgram`, from a file or from code.

In: the program. Out: the module that it runs as, which knows its program, and its copy in float64.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram

from exporter.worker.torch_private import pytree

_KEY = "_exporter_program"
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_ASSERTION = "aten._assert_tensor_metadata.default"


def convert_to_module(program: ExportedProgram) -> torch.nn.Module:
    """The program as a module to run; `find_program` finds the program again."""
    module = program.module()
    # Past `__setattr__`, which is for parameters and submodules.
    module.__dict__[_KEY] = program
    return module


def find_program(model: object) -> ExportedProgram | None:
    """The program that a model was made from; None for all other models."""
    found = getattr(model, "__dict__", {}).get(_KEY)
    return found if isinstance(found, ExportedProgram) else None


def build_float64_module(program: ExportedProgram) -> torch.nn.Module:
    """A copy that computes in float64 throughout.

    A captured program has the dtypes of its casts and assertions written into it, also where the
    model said `x.to(y.dtype)`.
    """
    # A copy of the module alone: it shares its weights with the program.
    module = copy.deepcopy(program.module())
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _widen(part)
    return module.double()


def _widen(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if str(node.target) == _ASSERTION:
            module.graph.erase_node(node)
        else:
            node.args = pytree.tree_map(_widened, node.args)
            node.kwargs = pytree.tree_map(_widened, node.kwargs)
    module.recompile()


def _widened(value: Any) -> Any:
    return torch.float64 if value in _NARROW else value


def order_leaves(program: ExportedProgram, args: Any, kwargs: Any) -> list[Any] | None:
    """The leaves of a call in the order in which the program takes them.

    Args:
        program: What was captured.
        args: The positional arguments, with anything in the place of tensors.
        kwargs: The keyword arguments, in any order.

    Returns:
        None where the call is built in another way than the program's.
    """
    spec = program.call_spec.in_spec
    if spec is None:
        return None
    numbered = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    places = {pytree.keystr(path): n for path, n in pytree.tree_flatten_with_path(numbered)[0]}
    leaves = {
        pytree.keystr(path): leaf
        for path, leaf in pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    }
    if places.keys() != leaves.keys():
        return None
    return [leaves[place] for place in sorted(places, key=lambda place: int(places[place]))]
