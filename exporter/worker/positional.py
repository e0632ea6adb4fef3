"""A model as the TorchScript tracer wants it: called by position, with tensors alone.

In: a module and its contract. Out: a module whose `forward` takes the declared inputs in their
order, and the renaming that takes the wrapping out of the exported names again.

Called as it is, with keyword arguments or constants, the tracer makes a graph input of every
Python number, default arguments included, and orders inputs by the signature of `forward`. A
`torch.onnx.ExportableModule` would go to the dynamo exporter, whatever was asked for.
"""

from __future__ import annotations

import inspect
from typing import Any

import onnx_ir as ir
import torch

from exporter.manifest import ModelSpec
from exporter.manifest.calls import is_by_position
from exporter.worker.inputs import call_of
from exporter.worker.source import Model

_WRAPPED = "_exporter_wrapped"


class Positional(torch.nn.Module):
    """Calls the wrapped module with each tensor where its `at` says."""

    def __init__(self, model: torch.nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.add_module(_WRAPPED, model)
        self.train(model.training)
        self._spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The outputs of the wrapped module, as they are."""
        names = [item.name for item in self._spec.inputs]
        leaves = dict(zip(names, tensors, strict=True))
        call = call_of(self._spec, leaves, lambda value: value)
        return self.get_submodule(_WRAPPED)(*call.args, **call.kwargs)


def needs_wrapping(spec: ModelSpec, model: Model) -> bool:
    """Whether the call holds more than tensors in positions of their own, or is not traced."""
    is_plain = is_by_position((item.at for item in spec.inputs), constants=bool(spec.constants))
    return not is_plain or _has_default_numbers(model) or _is_for_dynamo(model)


def _is_for_dynamo(model: Model) -> bool:
    exportable = getattr(torch.onnx, "ExportableModule", None)  # since torch 2.11
    return exportable is not None and isinstance(model, exportable)


def _has_default_numbers(model: Model) -> bool:
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # no readable signature
        return False
    return any(isinstance(parameter.default, int | float) for parameter in parameters)


def unwrap_names(model: ir.Model) -> None:
    """Gives the weights the names that they have in the model itself."""
    prefix = f"{_WRAPPED}."
    for name, value in list(model.graph.initializers.items()):
        if name.startswith(prefix):
            value.name = name.removeprefix(prefix)
