"""The capture of a model for dynamo, once for all its opsets.

One kind of capture in one state of PyTorch is tried; see `attempts.py` for the others.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors, build_call, build_tensor_call
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, find_source_line, wrap_errors
from exporter.worker.process.setup import apply_state
from exporter.worker.torch_private.draft_export import (
    DraftFailure,
    defers_guards,
    export_draft,
    patch_capture,
    read_draft_report,
)


def capture_program(
    model: Model, spec: ModelSpec, inputs: Tensors, *, strict: bool, draft: bool = False
) -> Any:
    """Capture the model with all dynamic axes of the contract.

    `strict`: Whether dynamo reads the bytecode of the model.
    `draft`: Whether conditions that nothing proves become those of the example.

    Returns:
        The exported program before decomposition.

    Raises:
        Failure: At stage `capture`, with the message of torch.
    """
    captured = find_program(model)
    if captured is not None:
        return captured
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise Failure(
            Stage.CAPTURE,
            f"{spec.source}: dynamo captures a torch.nn.Module, got a {type(model).__name__}; "
            "set exporter = 'torchscript'",
        )
    call = build_tensor_call(spec, inputs)
    is_dynamic = any(
        is_symbolic_integer(item) or any(isinstance(dim, str) for dim in item.shape)
        for item in spec.inputs
    )
    export: Any = export_draft if draft else torch.export.export
    with wrap_errors(Stage.CAPTURE), patch_capture(dynamic=is_dynamic), apply_state(spec):
        program: ExportedProgram = export(
            model,
            call.args,
            kwargs=call.kwargs,
            dynamic_shapes=list_dynamic_shapes(model, spec) if is_dynamic else None,
            strict=strict,
            prefer_deferred_runtime_asserts_over_guards=defers_guards(),
        )
    return program


def list_dynamic_shapes(model: torch.nn.Module, spec: ModelSpec) -> dict[str, Any]:
    """Return the dynamic dimensions by the names of the parameters of `forward`."""
    hints = {item.name: _make_hints(item, spec) for item in spec.inputs}
    call = build_call(spec, hints, lambda _: None)
    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    return dict(bound.arguments)


def is_symbolic_integer(item: Input) -> bool:
    """Return True if torch.export receives the input as a symbolic integer."""
    return item.scalar and item.dtype == "int64"


def _make_hints(item: Input, spec: ModelSpec) -> Any:
    """Return a hint for each dynamic dimension.

    If the model fixes the size, `DYNAMIC` fails and `AUTO` would accept it.
    """
    if is_symbolic_integer(item):
        return Dim.DYNAMIC
    dims = enumerate(item.shape)
    return {index: _make_hint(spec, dim) for index, dim in dims if isinstance(dim, str)}


def _make_hint(spec: ModelSpec, name: str) -> Any:
    axis = spec.find_axis(name)
    if axis.factors is not None:
        # Only a derived dimension guarantees that the division has no remainder.
        low, high = axis.factors
        number = [each.name for each in spec.axes].index(name)
        return axis.multiple_of * Dim(f"_factor{number}", min=low, max=high)
    if axis.rule or (axis.min <= 1 and axis.max is None):
        # A derived axis has no hint for its rule: torch finds the relation if the model needs it.
        return Dim.DYNAMIC
    return Dim.DYNAMIC(min=axis.min if axis.min > 1 else None, max=axis.max)


#: The end of a long expression is left out.
_MOST_CHARACTERS = 80


def list_obstacles(program: Any, root: Path) -> tuple[str, ...]:
    """Return a line for each place; paths are relative to the root."""
    lines = (_describe(failure, root) for failure in read_draft_report(program))
    return tuple(dict.fromkeys(line for line in lines if line))


def _describe(failure: DraftFailure, root: Path) -> str:
    """Return the line of one place, or "" if another one contains it."""
    data = failure.data
    trace = "\n".join(f'File "{file}", line {line}' for file, line, _ in failure.frames)
    source = find_source_line(trace, root)
    number = source.rpartition(":")[2]
    code = next((text for _, line, text in failure.frames if str(line) == number), "")
    prefix = f'{source}: "{code}"' if code else source or "a line outside of the model"
    expression = str(data.get("expr", ""))[:_MOST_CHARACTERS]
    match failure.kind:
        case "DATA_DEPENDENT_ERROR":
            return f"{prefix} depends on values: {expression} was {data.get('result')}"
        case "GUARD_ADDED" if data.get("prefix") != "runtime_assert":
            sizes = ", ".join(str(each) for each in data.get("symbol_to_sources", {}).values())
            return f"{prefix} limits sizes ({sizes}): {expression}"
        case "MISSING_FAKE_KERNEL":
            return f"the operator {data.get('op')} has no fake kernel; add one by register_fake"
        case "MISMATCHED_FAKE_KERNEL":
            return f"the fake kernel of {data.get('op')} is wrong: {data.get('reason')}"
    return ""
