"""A captured model: a `torch.export.ExportedProgram` from a file or from code."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exporter.manifest import ModelSpec
from exporter.worker.inputs.call import build_call
from exporter.worker.torch_private import internals

#: The attribute of a module that runs a program.
PROGRAM = "_exporter_program"


def find_program(model: object) -> ExportedProgram | None:
    """Return the program of a model, or None if the model is no captured program."""
    program = getattr(model, "__dict__", {}).get(PROGRAM)
    return program if isinstance(program, ExportedProgram) else None


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
