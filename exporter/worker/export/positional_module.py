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
from exporter.manifest.syntax.call_paths import is_positional_call
from exporter.worker.inputs.call import build_call
from exporter.worker.model.call_objects import WRAPPED_NAME, has_object_outputs
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private import pytree


class PositionalModule(torch.nn.Module):
    """Calls the wrapped module with each tensor where its `at` says."""

    def __init__(self, model: torch.nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.add_module(WRAPPED_NAME, model)
        self.train(model.training)
        self._spec = spec
        self._takes_apart = has_object_outputs(model)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The outputs of the wrapped module, as they are; of objects, what they hold."""
        names = [item.name for item in self._spec.inputs]
        leaves = dict(zip(names, tensors, strict=True))
        call = build_call(self._spec, leaves, lambda value: value)
        returned = self.get_submodule(WRAPPED_NAME)(*call.args, **call.kwargs)
        if not self._takes_apart:
            return returned
        return tuple(leaf for leaf in pytree.tree_leaves(returned) if leaf is not None)


def needs_wrapping(spec: ModelSpec, model: Model) -> bool:
    """Whether the call holds more than tensors in positions of their own, or is not traced."""
    others = bool(spec.constants or spec.containers) or any(item.scalar for item in spec.inputs)
    is_plain = is_positional_call((item.at for item in spec.inputs), others=others)
    is_whole = is_plain and not has_object_outputs(model)
    return not is_whole or _has_default_numbers(model) or _is_for_dynamo(model)


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
    prefix = f"{WRAPPED_NAME}."
    for name, value in list(model.graph.initializers.items()):
        bare = name
        while bare.startswith(prefix):  # one wrapper may stand around another
            bare = bare.removeprefix(prefix)
        if bare != name:
            value.name = bare
