"""Objects of user code: in the call of a model, among its outputs, and its custom operators.

Exporters flatten only tuples, lists and dicts. So the exported module builds the objects from its
inputs, and the exporter does not need the classes. Floats and booleans are read from tensors
there: as arguments, dynamo would convert them to constants.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import onnxscript
import torch
from onnx_ir.schemas import AttributeParameter
from torch.onnx import symbolic_helper
from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

from exporter.core import import_plugin
from exporter.core.errors import suggest_nearest
from exporter.core.import_object import load_attribute
from exporter.manifest import CustomOp, ModelSpec
from exporter.manifest.syntax.values import Step, parse_call_path
from exporter.records.record import Stage
from exporter.runtimes import NO_KERNELS, Kernels, load_kernels
from exporter.worker.inputs.call import build_call
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, wrap_errors
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
    """A module that calls the wrapped module with the objects of its contract."""

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
        part: torch.nn.Module = import_plugin("generate").select_part(model, spec, spec.generate)
        return part
    numbers = [item.at for item in spec.inputs if item.scalar and item.dtype != "int64"]
    objects = [container for container in spec.containers if container.is_object]
    if not isinstance(model, torch.nn.Module) or spec.capture == "script":
        return model
    if find_program(model) is not None:  # its call was fixed by the capture
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
    if isinstance(model, torch.nn.Module) and _has_objects(internals.tree_structure(returned)):
        # `__setattr__` is for parameters and submodules.
        vars(model)[_OBJECT_OUTPUTS] = True


def has_object_outputs(model: Model) -> bool:
    """Return True if `record_object_outputs` marked the model."""
    return isinstance(model, torch.nn.Module) and vars(model).get(_OBJECT_OUTPUTS, False)


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


_Function: TypeAlias = "onnxscript.OnnxFunction[..., Any]"
_Kind: TypeAlias = Literal["v", "i", "is", "f", "fs", "b", "s", "t", "none"]

#: The kinds of `symbolic_helper.parse_args`, by the type of an ONNX attribute.
_KINDS: Mapping[str, _Kind] = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "FLOATS": "fs", "INTS": "is", "TENSOR": "t",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedOperator:
    """One entry with the objects that it names."""

    entry: CustomOp
    symbolic: Callable[..., Any] | None = None
    """The symbolic function for TorchScript."""
    function: _Function | None = None
    """The function that `symbolic` writes into the file."""
    target: Any = None
    """The operator in the program of dynamo."""
    translation: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOps:
    """All custom operators of a model."""

    operators: tuple[_LoadedOperator, ...] = ()
    kernels: Kernels = NO_KERNELS

    @contextmanager
    def register_symbolics(self, opset: int) -> Iterator[None]:
        """Register the symbolic functions for `opset` with TorchScript's exporter inside."""
        selected = self._select(opset, lambda item: item.symbolic)
        for name, item in selected.items():
            if item.symbolic is not None:
                register_custom_op_symbolic(name, item.symbolic, opset)
        try:
            yield
        finally:
            for name, item in selected.items():
                unregister_custom_op_symbolic(name, opset)
                if function := item.function:
                    # If the exporter used the function, it has registered its own name too.
                    domain = function.opset.domain
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        unregister_custom_op_symbolic(
                            f"{domain}::{function.name}", function.opset.version
                        )

    def get_translations(self, opset: int) -> Mapping[Any, Callable[..., Any]]:
        """Return the `custom_translation_table` for `opset`."""
        selected = self._select(opset, lambda item: item.translation).values()
        return {item.target: item.translation for item in selected if item.translation is not None}

    def _select(
        self, opset: int, key: Callable[[_LoadedOperator], object]
    ) -> dict[str, _LoadedOperator]:
        """Return the entry of the highest opset up to `opset`, by operator."""
        fitting = [item for item in self.operators if key(item) and item.entry.opset <= opset]
        fitting.sort(key=lambda item: item.entry.opset)
        return {item.entry.name: item for item in fitting}


NO_CUSTOM_OPS = CustomOps()


def load_custom_ops(spec: ModelSpec, root: Path) -> CustomOps:
    """Import the objects that the entries name; requires that the model is loaded.

    Raises:
        Failure: Stage `source` with the name of the entry, if an object has the wrong type.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE):
        return CustomOps(
            operators=tuple(_load_operator(entry, folder) for entry in spec.custom_ops),
            kernels=load_kernels(spec, root),
        )


def _load_operator(entry: CustomOp, folder: Path) -> _LoadedOperator:
    if entry.onnxscript:
        function = load_attribute(entry.onnxscript, folder)
        if not isinstance(function, onnxscript.OnnxFunction):
            actual = type(function).__name__
            raise _build_failure(
                entry, f"{entry.onnxscript} is a {actual}, expected a function of onnxscript"
            )
        symbolic = _create_symbolic(entry, function)
        return _LoadedOperator(entry=entry, symbolic=symbolic, function=function)
    if entry.symbolic:
        return _LoadedOperator(entry=entry, symbolic=_load_function(entry, entry.symbolic, folder))
    if entry.translation:
        translation = _load_function(entry, entry.translation, folder)
        return _LoadedOperator(entry=entry, target=_find_overload(entry), translation=translation)
    return _LoadedOperator(entry=entry)


def _load_function(entry: CustomOp, source: str, folder: Path) -> Callable[..., Any]:
    function = load_attribute(source, folder)
    if not callable(function):
        actual = type(function).__name__
        raise _build_failure(entry, f"{source} is a {actual}, expected a function")
    checked: Callable[..., Any] = function
    return checked


def _find_overload(entry: CustomOp) -> Any:
    namespace, name, overload = entry.name.split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        raise _build_failure(
            entry,
            f"PyTorch has no operator {namespace}::{name} after the model is built; "
            "import the module that registers it in the file of the model",
        )
    if overload not in packet.overloads():
        known = ", ".join(packet.overloads())
        hint = suggest_nearest(overload, packet.overloads())
        raise _build_failure(entry, f"{namespace}::{name} has the overloads {known}{hint}")
    return getattr(packet, overload)


def _build_failure(entry: CustomOp, reason: str) -> Failure:
    return Failure(Stage.SOURCE, f"custom_ops '{entry.name}': {reason}")


def _create_symbolic(entry: CustomOp, function: _Function) -> Callable[..., Any]:
    """Return a symbolic function that calls `function` with the operator's arguments."""
    signature = function.op_signature
    # The kind is `v` for an input, and else the kind of the attribute.
    parameters: list[tuple[str, _Kind]] = [
        (item.name, _KINDS[item.type.name] if isinstance(item, AttributeParameter) else "v")
        for item in (signature.params if signature else ())
    ]
    outputs = len(function.to_function_proto().output)

    def symbolic(g: Any, *arguments: Any) -> Any:
        if len(arguments) != len(parameters):
            raise TypeError(
                f"{entry.name} has {len(arguments)} arguments, "
                f"{entry.onnxscript} accepts {len(parameters)}"
            )
        tensors, attributes = [], {}
        for argument, (name, kind) in zip(arguments, parameters, strict=True):
            if kind == "v":
                tensors.append(argument)
            else:
                # The suffix is the kind of the attribute, or of the items of a list.
                parse = symbolic_helper.parse_args(kind)(lambda _graph, value: value)
                attributes[f"{name}_{kind[0]}"] = parse(None, argument)
        return g.onnxscript_op(function, *tensors, outputs=outputs, **attributes)

    return symbolic
