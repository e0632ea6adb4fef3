"""One run of a model in PyTorch, as declared or in float64, and snapshots of its state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors, build_tensor_call
from exporter.worker.model.call_objects import record_object_outputs, register_output_classes
from exporter.worker.model.exported_program import build_float64_module, find_program
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, format_error, wrap_errors
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.dispatch_modes import compute_in_float64, log_operators
from exporter.worker.reference.outputs import (
    Outputs,
    flatten_outputs,
    list_leaves,
    require_declared_outputs,
)

#: Maximum size in bytes of weights that are copied for a run in float64.
_COPIED = 1 << 29


class BufferSnapshot:
    """The buffers of a model, which a run may change (BatchNorm in training mode)."""

    def __init__(self, model: Model) -> None:
        modules = model.modules() if isinstance(model, torch.nn.Module) else ()
        self._buffers = [
            (module, name, buffer, buffer.clone())
            for module in modules
            for name, buffer in module.named_buffers(recurse=False)
        ]

    def restore(self) -> None:
        """Restore every buffer: the tensor object and its values."""
        with torch.no_grad():
            for module, name, buffer, values in self._buffers:
                if getattr(module, name, None) is not buffer:
                    setattr(module, name, buffer)
                if not buffer.is_inference() and buffer.shape == values.shape:
                    buffer.copy_(values)


def run_declared_inputs(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """Return the outputs for the declared inputs, compared with the declared outputs.

    Raises:
        Failure: Stage `source`, if the model does not run, or if it does not return one tensor
            for each declared output.
    """
    with wrap_errors(Stage.SOURCE):
        returned = call_model(model, spec, inputs)
        register_output_classes(returned)
        record_object_outputs(model, returned)
        return require_declared_outputs(returned, spec)


def run_model(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """Return the outputs for one input set.

    Raises:
        Failure: Stage `source`, if the model does not run on these inputs.
    """
    with wrap_errors(Stage.SOURCE):
        return flatten_outputs(call_model(model, spec, inputs), spec)


def find_output_lines(model: Model, spec: ModelSpec, inputs: Tensors) -> tuple[str, ...]:
    """Return for each output the model's line that computes it; "" if it is unknown.

    Raises:
        Failure: Stage `source`, if the model does not run on these inputs.
    """
    with wrap_errors(Stage.SOURCE), log_operators() as log:
        leaves = list_leaves(call_model(model, spec, inputs), spec)
        firsts = (next(iter(leaf), None) if isinstance(leaf, list) else leaf for leaf in leaves)
        return tuple(log.lines.get(id(first), "") for first in firsts)


class Float64Wrapper(torch.nn.Module):
    """A module that runs a model in float64 without a copy of its weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # a tuple, because an attribute would be a submodule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the model."""
        with compute_in_float64():
            return self._model[0](*args, **kwargs)


def build_float64_model(model: Model) -> tuple[Model | None, str]:
    """Return a model that computes in float64, or None and the reason.

    Returns:
        A copy. If the weights are too large for a copy, a wrapper that casts them one by one.
    """
    if not isinstance(model, torch.nn.Module):
        return model, ""
    program = find_program(model)
    try:
        if sum(weight.nbytes for weight in (*model.parameters(), *model.buffers())) > _COPIED:
            return Float64Wrapper(model), ""
        if program is not None:
            return build_float64_module(program), ""
        copied = copy.deepcopy(model).double()
        for weight in (*copied.parameters(), *copied.buffers()):
            if weight.is_complex():  # `double` does not cast it
                weight.data = weight.data.to(torch.complex128)
        return copied, ""
    except Exception as error:  # a model may raise any error in a copy
        return None, f"the model cannot be copied to float64: {format_error(error)}"


def run_in_float64(model: Model | None, spec: ModelSpec, inputs: Tensors) -> Outputs | None:
    """Return the float64 outputs for the same values, or None if the model does not run.

    Args:
        model: The result of `build_float64_model`.
        spec: The contract.
        inputs: The inputs in their declared dtypes.
    """
    if model is None:
        return None
    wide = {
        name: value.to(torch.complex128)
        if value.is_complex()
        else value.double()
        if value.is_floating_point()
        else value
        for name, value in inputs.items()
    }
    try:
        with _default_dtype(torch.float64):
            outputs = run_model(model, spec, wide)
    except Failure:
        return None
    return outputs if len(outputs) == len(spec.outputs) else None


def call_model(model: Model, spec: ModelSpec, inputs: Tensors) -> Any:
    """Return the unchanged result of a call in the state of the contract."""
    call = build_tensor_call(spec, inputs)
    with apply_state(spec):
        return model(*call.args, **call.kwargs)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set the dtype of the tensors that a model creates in `forward`."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)
