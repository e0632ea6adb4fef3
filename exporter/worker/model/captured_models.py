"""Models that are captured programs: a saved one (`.pt2`), or one that code returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.model.exported_program import PROGRAM, pair_inputs
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import internals

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_ASSERTION = "aten._assert_tensor_metadata.default"


def load_program(program: ExportedProgram, spec: ModelSpec) -> torch.nn.Module:
    """Return a module that runs the program.

    Raises:
        Failure: Stage `source`, if the entry has a key that the capture fixed.
    """
    settings = {
        "weights": bool(spec.weights),
        "mode": spec.mode == "train",
        "precision": spec.precision is not None,
        "export_device": spec.export_device != "cpu",
    }
    for key in (key for key, is_set in settings.items() if is_set):
        message = f"{spec.source} is an ExportedProgram: its capture fixed the {key}; "
        raise Failure(Stage.SOURCE, f"{message}remove `{key}`")
    return convert_to_module(program)


def convert_to_module(program: ExportedProgram) -> torch.nn.Module:
    """Return a module that runs the program; `find_program` returns the program again."""
    module = program.module()
    # `__setattr__` is for parameters and submodules.
    vars(module)[PROGRAM] = program
    return module


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


def require_matching_inputs(program: ExportedProgram, spec: ModelSpec) -> None:
    """Raise if a captured program cannot run on the declared inputs.

    Without this comparison, the program would fail with an assertion of its own. A dimension
    that is dynamic in one and fixed in the other is not compared here: the check `signature`
    finds it in the file.
    """
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
