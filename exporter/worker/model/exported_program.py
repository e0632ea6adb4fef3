"""A captured model: a `torch.export.ExportedProgram` from a file or from code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import build_call
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import internals

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


def build_float64_module(
    program: ExportedProgram, duplicate: Callable[[torch.nn.Module], torch.nn.Module]
) -> torch.nn.Module:
    """Return a copy that computes in float64 only; `duplicate` copies a module.

    The casts and assertions of a captured program have fixed dtypes, even if the code of the
    model was `x.to(y.dtype)`.
    """
    # The module shares its weights with the program, so copy the module.
    module = duplicate(program.module())
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if str(node.target) == _ASSERTION:
                part.graph.erase_node(node)
            else:
                node.args = internals.tree_map(_widen_dtype, node.args)
                node.kwargs = internals.tree_map(_widen_dtype, node.kwargs)
        part.recompile()
    return module.double()


def _widen_dtype(value: Any) -> Any:
    return torch.float64 if value in _NARROW else value


def order_leaves(program: ExportedProgram, args: Any, kwargs: Any) -> list[Any] | None:
    """Return the leaves of a call in the order of the program's inputs.

    The result is None if the call has another structure than the program's. The arguments may have
    any objects instead of tensors.
    """
    spec = program.call_spec.in_spec
    if spec is None:
        return None
    numbered = internals.tree_unflatten(list(range(spec.num_leaves)), spec)
    indices = {
        internals.keystr(path): int(index)
        for path, index in internals.tree_flatten_with_path(numbered)[0]
    }
    leaves = {
        internals.keystr(path): leaf
        for path, leaf in internals.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    }
    if indices.keys() != leaves.keys():
        return None
    return [leaves[path] for path in sorted(indices, key=indices.__getitem__)]


def pair_inputs(
    program: ExportedProgram, spec: ModelSpec
) -> tuple[list[str], list[tuple[Any, Any]] | None]:
    """Return the names of a program's inputs, and the declared inputs with their examples.

    There are no pairs, but None, if the program was captured for another call.
    """
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda value: value)
    leaves = order_leaves(program, call.args, call.kwargs)
    names = [
        str(getattr(item.arg, "name", ""))
        for item in program.graph_signature.input_specs
        if item.kind is InputKind.USER_INPUT
    ]
    if leaves is None or len(leaves) != len(names):
        return names, None
    examples = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return names, [(leaf, examples.get(name)) for leaf, name in zip(leaves, names, strict=True)]


def require_matching_inputs(model: object, spec: ModelSpec) -> None:
    """Raise if a captured program cannot run on the declared inputs; ignore other models.

    Without this comparison, the program would fail with an assertion of its own. A dimension
    that is dynamic in one and fixed in the other is not compared here: the check `signature`
    finds it in the file.
    """
    program = find_program(model)
    if program is None:
        return
    names, pairs = pair_inputs(program, spec)
    if pairs is None:
        raise Failure(
            Stage.SOURCE,
            f"the program was captured for another call: it has {len(names)} inputs "
            f"({', '.join(names)}), the manifest declares "
            f"{', '.join(item.at for item in spec.inputs)}",
            status=Status.FAIL,
        )
    problems = [
        problem
        for leaf, example in pairs
        if isinstance(leaf, Input) and (problem := _describe_misfit(leaf, example, spec))
    ]
    if problems:
        raise Failure(Stage.SOURCE, "; ".join(problems), status=Status.FAIL)


def _describe_misfit(item: Input, example: Any, spec: ModelSpec) -> str:
    if not isinstance(example, torch.Tensor):
        return f"the program was captured with a constant instead of input '{item.name}'"
    named = {dim: spec.find_axis(dim).example for dim in item.shape if isinstance(dim, str)}
    expected = [named[dim] if isinstance(dim, str) else dim for dim in item.shape]
    # A dynamic size is a symbol, although torch declares the type int for all sizes.
    shape: tuple[Any, ...] = tuple(example.shape)
    sizes = [size if isinstance(size, int) else None for size in shape]
    fits = len(expected) == len(sizes) and all(
        size in (None, declared) for size, declared in zip(sizes, expected, strict=True)
    )
    dtype = str(example.dtype).removeprefix("torch.")
    if fits and dtype == item.dtype:
        return ""
    actual = ", ".join("?" if size is None else str(size) for size in sizes)
    declared = ", ".join(map(str, item.shape))
    values = ", ".join(f"{name}={size}" for name, size in named.items())
    return (
        f"the program was captured with input '{item.name}' as {dtype} [{actual}], declared is "
        f"{item.dtype} [{declared}]{f' with {values}' if values else ''}"
    )
