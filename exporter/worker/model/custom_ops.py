"""Custom operators of a model: symbolic functions for TorchScript and translations for dynamo."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import onnxscript
import torch
from onnx_ir.schemas import AttributeParameter
from torch.onnx import symbolic_helper
from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

from exporter.core.errors import suggest_nearest
from exporter.core.import_object import load_attribute
from exporter.manifest import CustomOp, ModelSpec
from exporter.records.record import Stage
from exporter.worker.model.call_objects import CustomOps
from exporter.worker.model.kernels import load_kernels
from exporter.worker.process.failure import Failure, wrap_errors

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
class LoadedOps(CustomOps):
    """All custom operators of a model."""

    operators: tuple[_LoadedOperator, ...]

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


def load_custom_ops(spec: ModelSpec, root: Path) -> CustomOps:
    """Import the objects that the entries name; requires that the model is loaded.

    Raises:
        Failure: Stage `source` with the name of the entry, if an object has the wrong type.
    """
    if not spec.custom_ops:
        return CustomOps()
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE):
        return LoadedOps(
            operators=tuple(_load_operator(entry, folder) for entry in spec.custom_ops),
            kernels=load_kernels(spec, root),
        )


def _load_operator(custom_op: CustomOp, folder: Path) -> _LoadedOperator:
    if custom_op.onnxscript:
        function = load_attribute(custom_op.onnxscript, folder)
        if not isinstance(function, onnxscript.OnnxFunction):
            actual = type(function).__name__
            raise _build_failure(
                custom_op,
                f"{custom_op.onnxscript} is a {actual}, expected a function of onnxscript",
            )
        symbolic = _create_symbolic(custom_op, function)
        return _LoadedOperator(entry=custom_op, symbolic=symbolic, function=function)
    if custom_op.symbolic:
        return _LoadedOperator(
            entry=custom_op, symbolic=_load_function(custom_op, custom_op.symbolic, folder)
        )
    if custom_op.translation:
        translation = _load_function(custom_op, custom_op.translation, folder)
        return _LoadedOperator(
            entry=custom_op, target=_find_overload(custom_op), translation=translation
        )
    return _LoadedOperator(entry=custom_op)


def _load_function(custom_op: CustomOp, source: str, folder: Path) -> Callable[..., Any]:
    function = load_attribute(source, folder)
    if not callable(function):
        actual = type(function).__name__
        raise _build_failure(custom_op, f"{source} is a {actual}, expected a function")
    checked: Callable[..., Any] = function
    return checked


def _find_overload(custom_op: CustomOp) -> Any:
    namespace, name, overload = custom_op.name.split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        raise _build_failure(
            custom_op,
            f"PyTorch has no operator {namespace}::{name} after the model is built; "
            "import the module that registers it in the file of the model",
        )
    if overload not in packet.overloads():
        known = ", ".join(packet.overloads())
        hint = suggest_nearest(overload, packet.overloads())
        raise _build_failure(custom_op, f"{namespace}::{name} has the overloads {known}{hint}")
    return getattr(packet, overload)


def _build_failure(custom_op: CustomOp, reason: str) -> Failure:
    return Failure(Stage.SOURCE, f"custom_ops '{custom_op.name}': {reason}")


def _create_symbolic(custom_op: CustomOp, function: _Function) -> Callable[..., Any]:
    """Return a symbolic function that calls `function` with the operator's arguments."""
    signature = function.op_signature
    items = signature.params if signature else ()
    # The kind is `v` for an input, and else the kind of the attribute.
    parameters: list[tuple[str, _Kind]] = [
        (item.name, _KINDS[item.type.name] if isinstance(item, AttributeParameter) else "v")
        for item in items
    ]
    outputs = len(function.to_function_proto().output)

    def symbolic(g: Any, *arguments: Any) -> Any:
        if len(arguments) != len(parameters):
            raise TypeError(
                f"{custom_op.name} has {len(arguments)} arguments, "
                f"{custom_op.onnxscript} accepts {len(parameters)}"
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
