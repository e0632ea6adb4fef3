"""Comparison of a captured program's inputs with the contract."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import InputKind

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import build_call
from exporter.worker.model.exported_program import find_program, order_leaves
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure


def require_matching_inputs(model: Model, spec: ModelSpec) -> None:
    """Raise if a captured program cannot run on the declared inputs; ignore other models.

    Without this comparison, the program would fail with an assertion of its own. A dimension
    that is dynamic in one and fixed in the other is not compared here: the check `signature`
    finds it in the file.

    Raises:
        Failure: Stage `source`.
    """
    program = find_program(model)
    if program is None:
        return
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda value: value)
    leaves = order_leaves(program, call.args, call.kwargs)
    names = [
        str(getattr(item.arg, "name", ""))
        for item in program.graph_signature.input_specs
        if item.kind is InputKind.USER_INPUT
    ]
    if leaves is None or len(leaves) != len(names):
        raise Failure(
            Stage.SOURCE,
            f"the program was captured for another call: it has {len(names)} inputs "
            f"({', '.join(names)}), the manifest declares "
            f"{', '.join(item.at for item in spec.inputs)}",
            status=Status.FAIL,
        )
    examples = {node.name: node.meta.get("val") for node in program.graph.nodes}
    problems = [
        problem
        for leaf, name in zip(leaves, names, strict=True)
        if isinstance(leaf, Input) and (problem := _describe_misfit(leaf, examples.get(name), spec))
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
