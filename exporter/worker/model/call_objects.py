"""Objects of user code in the call of a model and among its outputs.

Exporters flatten only tuples, lists and dicts. So the exported module builds the objects from its
inputs, and the exporter does not need the classes. Floats and booleans are read from tensors
there: as arguments, dynamo would convert them to constants.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.values import Step, parse_call_path
from exporter.runtimes import NO_KERNELS, Kernels
from exporter.worker.inputs.call import build_call
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.generation import select_part
from exporter.worker.model.model_kinds import Model, is_compiled
from exporter.worker.torch_private import internals

#: The name of the model inside a wrapper, and the prefix of its weight names until unwrapping.
WRAPPED_NAME = "_exporter_wrapped"
#: The attribute of a model with other outputs than tuples, lists and dicts of tensors.
_OBJECT_OUTPUTS = "_exporter_object_outputs"

#: True during a trace by TorchScript; torch has no type for it and does not list the name.
_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Conversion:
    """The conversion of one value of the call and of the values in it."""

    build: Callable[..., Any] | None = None
    is_number: bool = False
    items: dict[Step, _Conversion] = field(default_factory=dict)

    def find(self, steps: tuple[Step, ...]) -> _Conversion:
        """Return the conversion at a path below this one; create it if it is missing."""
        conversion = self
        for step in steps:
            conversion = conversion.items.setdefault(step, _Conversion())
        return conversion


class CallObjectWrapper(torch.nn.Module):
    """A module that calls the wrapped module with the objects of its contract.

    A file contains the name of this Python module: as the domain of a function, and in the metadata
    of nodes.
    """

    def __init__(self, model: torch.nn.Module, conversions: dict[str, _Conversion]) -> None:
        super().__init__()
        self.add_module(WRAPPED_NAME, model)
        self.train(model.training)
        self._conversions = conversions

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the unchanged outputs of the wrapped module."""
        positional = _convert(self._conversions["args"], args)
        named = _convert(self._conversions["kwargs"], kwargs)
        return self.get_submodule(WRAPPED_NAME)(*positional, **named)


def wrap_with_call_objects(model: Model, spec: ModelSpec, root: Path) -> Model:
    """Return a wrapper that builds the objects of the call, or the model if it needs none.

    If the model generates, the wrapper calls the part that the entry names.
    """
    if spec.generate is not None:
        part: torch.nn.Module = select_part(model, spec, spec.generate)
        return part
    numbers = [item.at for item in spec.inputs if item.scalar and item.dtype != "int64"]
    objects = [container for container in spec.containers if container.is_object]
    # TorchScript compiles such a call itself, and a capture has fixed its own.
    if spec.capture == "script" or is_compiled(model) or find_program(model) is not None:
        return model
    if not numbers and not objects and not _has_input_in_any_keyword(model, spec):
        return model
    conversions = {"args": _Conversion(), "kwargs": _Conversion()}
    for at in numbers:
        root_name, steps = parse_call_path(at)
        conversions[root_name].find(steps).is_number = True
    folder = (root / spec.manifest).parent
    for container in objects:
        root_name, steps = parse_call_path(container.at)
        conversions[root_name].find(steps).build = load_attribute(container.type, folder)
    return _create_wrapper_class(spec)(model, conversions)


def _has_input_in_any_keyword(model: torch.nn.Module, spec: ModelSpec) -> bool:
    """Return True if `**kwargs` receives an input: torch.export loses its dynamic shapes."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # the function has no readable signature
        return False
    paths = [parse_call_path(item.at) for item in spec.inputs]
    named = {str(steps[0]) for root, steps in paths if root == "kwargs"}
    any_keyword = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    return any_keyword and not named <= parameters.keys()


def _create_wrapper_class(spec: ModelSpec) -> type[CallObjectWrapper]:
    """Return a class with a `forward` that has one parameter for each argument of the call."""

    def forward(self: CallObjectWrapper, *args: Any, **kwargs: Any) -> Any:
        return self.call(args, kwargs)

    call = build_call(spec, {item.name: None for item in spec.inputs}, lambda value: value)
    names = ["self", *(f"args_{index}" for index in range(len(call.args)))]
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(name, kind) for name in names]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in call.kwargs]
    # torch.export reads the parameters from this attribute.
    vars(forward).update(__signature__=inspect.Signature(parameters))
    return type("CallObjectWrapper", (CallObjectWrapper,), {"forward": forward})


def register_output_classes(returned: Any) -> None:
    """Register the dataclasses and mappings among the outputs, so that PyTorch flattens them."""
    for leaf in internals.tree_leaves(returned):
        is_mapping = isinstance(leaf, Mapping)
        if is_mapping or (dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)):
            register = internals.register_mapping if is_mapping else torch.export.register_dataclass
            register(type(leaf))
            register_output_classes(returned)  # a field may contain another one
            return


def record_object_outputs(model: Model, returned: Any) -> None:
    """Mark a model if a tracer cannot return its outputs: objects, or dicts with other keys."""
    if _has_objects(internals.tree_structure(returned)):
        # `__setattr__` is for parameters and submodules.
        vars(model)[_OBJECT_OUTPUTS] = True


def has_object_outputs(model: Model) -> bool:
    """Return True if `record_object_outputs` marked the model."""
    return bool(vars(model).get(_OBJECT_OUTPUTS, False))


def _has_objects(structure: internals.TreeSpec) -> bool:
    if structure.is_leaf():
        return False
    is_plain = structure.type in (tuple, list, dict)
    if structure.type is dict:  # the tracer converts other keys than text to tensors
        is_plain = all(isinstance(key, str) for key in structure.context)
    return not is_plain or any(_has_objects(child) for child in structure.children())


def _convert(conversion: _Conversion | None, value: Any) -> Any:
    """Return the value that the model expects; inner values are converted first."""
    if conversion is None:
        return value
    if conversion.is_number:
        # A tracer follows tensors; a number would become a constant.
        return value if _is_tracing() else value.item()
    if isinstance(value, dict):
        named = {key: _convert(conversion.items.get(key), item) for key, item in value.items()}
        return named if conversion.build is None else conversion.build(**named)
    if isinstance(value, tuple | list):
        items = [_convert(conversion.items.get(index), item) for index, item in enumerate(value)]
        if conversion.build is not None:
            return conversion.build(*items)
        return items if isinstance(value, list) else tuple(items)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOps:
    """The custom operators of a model; none, unless `custom_ops.py` loads them."""

    kernels: Kernels = NO_KERNELS

    @contextmanager
    def register_symbolics(self, _opset: int) -> Iterator[None]:
        """Register the symbolic functions for an opset with TorchScript's exporter inside."""
        yield

    def get_translations(self, _opset: int) -> Mapping[Any, Callable[..., Any]]:
        """Return the `custom_translation_table` for an opset."""
        return {}


NO_CUSTOM_OPS = CustomOps()
