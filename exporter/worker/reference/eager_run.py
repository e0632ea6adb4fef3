"""PyTorch itself, eagerly, on one input set: as declared, and in float64.

In: a model, its contract and named tensors. Out: its outputs as a flat tuple of tensors.
"""

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
from exporter.worker.reference.dispatch_modes import compute_in_float64
from exporter.worker.reference.outputs import Outputs, flatten_outputs, require_declared_outputs

#: Weights up to this many bytes are copied to run the model in float64.
_COPIED = 1 << 29


class BufferSnapshot:
    """The buffers of a model, which a forward pass may change (BatchNorm in training mode)."""

    def __init__(self, model: Model) -> None:
        modules = model.modules() if isinstance(model, torch.nn.Module) else ()
        self._kept = [
            (module, name, buffer, buffer.clone())
            for module in modules
            for name, buffer in module.named_buffers(recurse=False)
        ]

    def restore(self) -> None:
        """Puts every buffer back to what it was: the tensor itself, and its values."""
        with torch.no_grad():
            for module, name, buffer, values in self._kept:
                if getattr(module, name, None) is not buffer:
                    setattr(module, name, buffer)
                if not buffer.is_inference() and buffer.shape == values.shape:
                    buffer.copy_(values)


def run_declared_inputs(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """The outputs on the declared inputs, held against the declared outputs.

    Raises:
        Failure: of stage `source`, where the model does not run, or returns something else than
            one tensor per declared output.
    """
    with wrap_errors(Stage.SOURCE):
        returned = _call(model, spec, inputs)
        register_output_classes(returned)
        record_object_outputs(model, returned)
        return require_declared_outputs(returned, spec)


def run_model(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """The outputs on one input set.

    Raises:
        Failure: of stage `source`, where the model does not run on these inputs.
    """
    with wrap_errors(Stage.SOURCE):
        return flatten_outputs(_call(model, spec, inputs), spec)


class Float64Wrapper(torch.nn.Module):
    """A model that computes in float64 while its weights stay as they are."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._call = (model,)  # in a tuple, so that it is no submodule of this one

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns."""
        with compute_in_float64():
            return self._call[0](*args, **kwargs)


def _bytes_of(model: torch.nn.Module) -> int:
    return sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))


def build_float64_model(model: Model) -> tuple[Model | None, str]:
    """The model in float64; without that, the reason.

    A copy, or for models whose copy would take more memory than all else, the model itself with
    its weights cast one at a time.
    """
    if not isinstance(model, torch.nn.Module):
        return model, ""
    program = find_program(model)
    try:
        if _bytes_of(model) > _COPIED:
            return Float64Wrapper(model), ""
        if program is not None:
            return build_float64_module(program), ""
        twin = copy.deepcopy(model).double()
        for weight in (*twin.parameters(), *twin.buffers()):
            if weight.is_complex():  # `double` leaves them alone
                weight.data = weight.data.to(torch.complex128)
        return twin, ""
    except Exception as error:  # any model may refuse to be copied; then there is no twin
        return None, f"the model cannot be copied to float64: {format_error(error)}"


def run_in_float64(twin: Model | None, spec: ModelSpec, inputs: Tensors) -> Outputs | None:
    """The outputs in float64, of the same input values; None where that does not run."""
    if twin is None:
        return None
    wide = {name: _wide(value) for name, value in inputs.items()}
    try:
        with _default_dtype(torch.float64):
            outputs = run_model(twin, spec, wide)
    except Failure:
        return None
    return outputs if len(outputs) == len(spec.outputs) else None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _call(model: Model, spec: ModelSpec, inputs: Tensors) -> Any:
    call = build_tensor_call(spec, inputs)
    with torch.no_grad():
        return model(*call.args, **call.kwargs)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """So that tensors which a model makes inside `forward` are float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
