"""A wrapper for the TorchScript tracer: tensors by position, and nothing else.

With keyword arguments or constants, the tracer creates a graph input for every Python number, even
for defaults. It also sorts inputs by the signature of `forward`. torch exports a
`torch.onnx.ExportableModule` by dynamo, even if TorchScript was requested.
"""

from __future__ import annotations

import inspect
from typing import Any

import onnx_ir as ir
import torch

from exporter.manifest import ModelSpec
from exporter.manifest.syntax.call_paths import is_positional_call
from exporter.worker.inputs.call import build_call
from exporter.worker.model.call_objects import WRAPPED_NAME, has_object_outputs
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private import pytree


class PositionalModule(torch.nn.Module):
    """Calls the wrapped module with each tensor at the path of its `at`."""

    def __init__(self, model: torch.nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.add_module(WRAPPED_NAME, model)
        self.train(model.training)
        self._spec = spec
        self._flattens_outputs = has_object_outputs(model)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the outputs of the wrapped module; of objects, their tensors."""
        names = [item.name for item in self._spec.inputs]
        leaves = dict(zip(names, tensors, strict=True))
        call = build_call(self._spec, leaves, lambda value: value)
        returned = self.get_submodule(WRAPPED_NAME)(*call.args, **call.kwargs)
        if not self._flattens_outputs:
            return returned
        return tuple(leaf for leaf in pytree.tree_leaves(returned) if leaf is not None)


def needs_wrapping(spec: ModelSpec, model: Model) -> bool:
    """Return True if the call has more than positional tensors, or would not be traced."""
    others = bool(spec.constants or spec.containers) or any(item.scalar for item in spec.inputs)
    is_positional = is_positional_call((item.at for item in spec.inputs), others=others)
    if not is_positional or has_object_outputs(model):
        return True
    exportable = getattr(torch.onnx, "ExportableModule", None)  # since torch 2.11
    if exportable is not None and isinstance(model, exportable):
        return True
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # no readable signature
        return False
    return any(isinstance(parameter.default, int | float) for parameter in parameters)


def unwrap_names(model: ir.Model) -> None:
    """Restore the names that the weights have in the model itself."""
    prefix = f"{WRAPPED_NAME}."
    for name, value in list(model.graph.initializers.items()):
        bare = name
        while bare.startswith(prefix):  # wrappers may be nested
            bare = bare.removeprefix(prefix)
        if bare != name:
            value.name = bare
