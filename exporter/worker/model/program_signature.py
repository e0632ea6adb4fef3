"""Whether a captured program takes what the contract declares.

In: a model and its contract. Out: nothing, or a `Failure` that names every input that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import build_call
from exporter.worker.model.exported_program import find_program, order_leaves
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure


def require_matching_inputs(model: Model, spec: ModelSpec) -> None:
    """Refuses a captured program that cannot run on the declared inputs; does nothing for others.

    That a size is dynamic in the one and fixed in the other shows in the file, too: the signature
    check says so. Here is told what would end as an assertion of the program.

    Raises:
        Failure: of stage `source`.
    """
    program = find_program(model)
    if program is None:
        return
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda value: value)
    leaves = order_leaves(program, call.args, call.kwargs)
    taken = list(_taken(program))
    if leaves is None or len(leaves) != len(taken):
        names = ", ".join(item.at for item in spec.inputs)
        problem = (
            f"the program was captured for a call of other arguments ({len(taken)} inputs: "
            f"{', '.join(name for name, _ in taken)}) than the manifest makes ({names})"
        )
        raise Failure(Stage.SOURCE, problem, status=Status.FAIL)
    problems = [
        problem
        for leaf, (_, value) in zip(leaves, taken, strict=True)
        if isinstance(leaf, Input) and (problem := _misfit(leaf, value, spec))
    ]
    if problems:
        raise Failure(Stage.SOURCE, "; ".join(problems), status=Status.FAIL)


def _taken(program: ExportedProgram) -> Iterator[tuple[str, Any]]:
    """Name and example value of each input."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for item in program.graph_signature.input_specs:
        if item.kind is InputKind.USER_INPUT:
            name = str(getattr(item.arg, "name", ""))
            yield name, values.get(name)


def _misfit(item: Input, value: Any, spec: ModelSpec) -> str:
    if not isinstance(value, torch.Tensor):
        return f"the program was captured with a fixed value where input '{item.name}' goes"
    sizes = [spec.find_axis(dim).example if isinstance(dim, str) else dim for dim in item.shape]
    # A size that varies is a symbol of torch's, whatever the type of a shape says.
    shape: tuple[Any, ...] = tuple(value.shape)
    fits = len(sizes) == len(shape) and all(
        not isinstance(found, int) or found == size
        for found, size in zip(shape, sizes, strict=True)
    )
    dtype = str(value.dtype).removeprefix("torch.")
    if fits and dtype == item.dtype:
        return ""
    found = ", ".join(str(size) if isinstance(size, int) else "?" for size in shape)
    declared = ", ".join(map(str, item.shape))
    named = {d: spec.find_axis(d).example for d in item.shape if isinstance(d, str)}
    sized = ", ".join(f"{name}={size}" for name, size in named.items())
    return (
        f"the program was captured with input '{item.name}' as {dtype} [{found}], declared is "
        f"{item.dtype} [{declared}]{f' with {sized}' if sized else ''}"
    )
