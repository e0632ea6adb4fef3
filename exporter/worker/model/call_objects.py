"""Objects in the model's call and in what it returns.

In: a model and its contract. Out: a module that takes plain tuples, lists and dicts, and makes the
objects of them that the model wants; and dataclasses among the outputs, taken apart.

Exporters flatten tuples, lists and dicts alone. So the objects are made inside the exported
module, out of its inputs, and a class need not be known to them. The same goes for floats and
truth values: as arguments dynamo would keep them as they are, taken out of a tensor they are values
of the graph.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.call_paths import Step, parse_call_path
from exporter.worker.inputs.call import build_call
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private import pytree

#: The name of the model inside what is put around it: weights are called by it, until unwrapped.
WRAPPED_NAME = "_exporter_wrapped"

#: Whether TorchScript traces; torch gives it neither a type nor a place in its list of names.
_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]
#: Models that were seen to return objects, which a tracer cannot return.
_RETURNING: WeakSet[torch.nn.Module] = WeakSet()


@dataclass(slots=True)
class _Plan:
    """What to do with a value of the call: with itself, and with what stands in it."""

    make: Callable[..., Any] | None = None
    is_number: bool = False
    inner: dict[Step, _Plan] = field(default_factory=dict)


class CallObjectWrapper(torch.nn.Module):
    """Calls the wrapped module with the objects of its contract."""

    def __init__(self, model: torch.nn.Module, plan: dict[str, Any]) -> None:
        super().__init__()
        self.add_module(WRAPPED_NAME, model)
        self.train(model.training)
        self._plan = plan

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The outputs of the wrapped module, as they are."""
        made = _made(self._plan["args"], args)
        named = _made(self._plan["kwargs"], kwargs)
        return self.get_submodule(WRAPPED_NAME)(*made, **named)


def wrap_with_call_objects(model: Model, spec: ModelSpec, root: Path) -> Model:
    """The model, or what makes the objects of its call and then calls it."""
    numbers = [item.at for item in spec.inputs if item.scalar and item.dtype != "int64"]
    objects = [each for each in spec.containers if each.is_object]
    if not isinstance(model, torch.nn.Module) or spec.capture == "script":
        return model
    if find_program(model) is not None:  # it takes what it was captured with
        return model
    if not numbers and not objects and not _takes_any_keyword(model, spec):
        return model
    plans = {"args": _Plan(), "kwargs": _Plan()}
    for at in numbers:
        _planned(plans, at).is_number = True
    folder = (root / spec.manifest).parent
    for each in objects:
        _planned(plans, each.at).make = load_attribute(each.type, folder)
    return _with_signature(spec)(model, plans)


def _takes_any_keyword(model: torch.nn.Module, spec: ModelSpec) -> bool:
    """Whether an input goes into `**kwargs`, of which torch.export loses the dynamic shapes."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # no readable signature
        return False
    places = [parse_call_path(item.at) for item in spec.inputs]
    named = {str(steps[0]) for root, steps in places if root == "kwargs"}
    any_keyword = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    return any_keyword and not named <= parameters.keys()


def _with_signature(spec: ModelSpec) -> type[CallObjectWrapper]:
    """The class with a `forward` that has a parameter for each argument of the call."""

    def forward(self: CallObjectWrapper, *args: Any, **kwargs: Any) -> Any:
        return self.call(args, kwargs)

    call = build_call(spec, {item.name: None for item in spec.inputs}, lambda value: value)
    names = ["self", *(f"args_{index}" for index in range(len(call.args)))]
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(name, kind) for name in names]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in call.kwargs]
    # What reads a signature, torch.export above all, reads this one.
    vars(forward).update(__signature__=inspect.Signature(parameters))
    return type("Assembled", (CallObjectWrapper,), {"forward": forward})


def register_output_classes(returned: Any) -> Any:
    """What a model returned, with the classes of its dataclasses known to PyTorch from now on."""
    for leaf in pytree.tree_leaves(returned):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            return register_output_classes(returned)
    return returned


def record_object_outputs(model: Model, returned: Any) -> None:
    """Remembers a model that returns more than tuples, lists and dicts."""
    if isinstance(model, torch.nn.Module) and _has_objects(pytree.tree_structure(returned)):
        _RETURNING.add(model)


def has_object_outputs(model: Model) -> bool:
    """Whether the model was seen to."""
    return isinstance(model, torch.nn.Module) and model in _RETURNING


def _has_objects(structure: pytree.TreeSpec) -> bool:
    if structure.is_leaf():
        return False
    is_plain = structure.type in (tuple, list, dict)
    if structure.type is dict:  # the tracer would make tensors of other keys than text
        is_plain = all(isinstance(key, str) for key in structure.context)
    return not is_plain or any(_has_objects(child) for child in structure.children())


def _planned(plans: dict[str, _Plan], at: str) -> _Plan:
    root, steps = parse_call_path(at)
    plan = plans[root]
    for step in steps:
        plan = plan.inner.setdefault(step, _Plan())
    return plan


def _made(plan: _Plan | None, value: Any) -> Any:
    """The value as the model wants it; inner values first."""
    if plan is None:
        return value
    if plan.is_number:
        # A tracer follows tensors; a number would be a constant to it.
        return value if _is_tracing() else value.item()
    if isinstance(value, dict):
        named = {key: _made(plan.inner.get(key), item) for key, item in value.items()}
        return named if plan.make is None else plan.make(**named)
    if isinstance(value, tuple | list):
        items = [_made(plan.inner.get(index), item) for index, item in enumerate(value)]
        if plan.make is not None:
            return plan.make(*items)
        return items if isinstance(value, list) else tuple(items)
    return value
