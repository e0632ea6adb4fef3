"""Capture under the dynamo exporter: once per model, for all its opsets.

In: a model, its declared inputs and its axes. Out: a `torch.export.ExportedProgram`.

The capture that the manifest asks for is the one that is done: no other is tried in silence.
It is that of `torch.onnx.export` under `torch.no_grad`, since what is shipped trains no more.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from exporter.manifest import Input, ModelSpec
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors, build_call, build_tensor_call
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.torch_private.capture_patches import defers_guards, patch_capture


def capture_program(model: Model, spec: ModelSpec, inputs: Tensors, *, strict: bool) -> Any:
    """Captures the model with every axis of the contract dynamic.

    Returns:
        The exported program, before any decomposition.

    Raises:
        Failure: of stage `capture`, with what torch says.
    """
    captured = find_program(model)
    if captured is not None:
        return captured
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise Failure(
            Stage.CAPTURE,
            f"dynamo captures a torch.nn.Module, {spec.source} is a {type(model).__name__}; "
            "set exporter = 'torchscript'",
        )
    call = build_tensor_call(spec, inputs)
    is_dynamic = any(
        is_symbolic_integer(item) or any(isinstance(dim, str) for dim in item.shape) for item in spec.inputs
    )
    with wrap_errors(Stage.CAPTURE), patch_capture(dynamic=is_dynamic), torch.no_grad():
        program: ExportedProgram = torch.export.export(
            model,
            call.args,
            kwargs=call.kwargs,
            dynamic_shapes=_dynamic_shapes(model, spec) if is_dynamic else None,
            strict=strict,
            prefer_deferred_runtime_asserts_over_guards=defers_guards(),
        )
    return program


def _dynamic_shapes(model: torch.nn.Module, spec: ModelSpec) -> dict[str, Any]:
    """The axes in the shape of the call, by the name of each parameter of `forward`."""
    hints = build_call(spec, {item.name: _hints(item, spec) for item in spec.inputs}, lambda _: None)
    bound = inspect.signature(model.forward).bind(*hints.args, **hints.kwargs)
    return dict(bound.arguments)


def is_symbolic_integer(item: Input) -> bool:
    """Whether an input is a symbolic integer to torch.export, and no tensor."""
    return item.scalar and item.dtype == "int64"


def _hints(item: Input, spec: ModelSpec) -> Any:
    """A hint per dynamic dimension. DYNAMIC refuses to be specialised, AUTO would not."""
    if is_symbolic_integer(item):
        return Dim.DYNAMIC
    return {index: _hint(spec, dim) for index, dim in enumerate(item.shape) if isinstance(dim, str)}


def _hint(spec: ModelSpec, name: str) -> Any:
    axis = spec.find_axis(name)
    if axis.factors is not None:
        # Only a derived dimension promises that what is left over is nothing.
        least, most = axis.factors
        number = [each.name for each in spec.axes].index(name)
        return axis.multiple_of * Dim(f"_factor{number}", min=least, max=most)
    if axis.min <= 1 and axis.max is None:
        return Dim.DYNAMIC
    return Dim.DYNAMIC(min=axis.min if axis.min > 1 else None, max=axis.max)
