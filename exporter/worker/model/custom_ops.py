"""The custom operators of a manifest, loaded: what the exporters and the runtimes get of them.

In: a `ModelSpec`, once its model is loaded (which may register operators with PyTorch). Out:
`CustomOps`: symbolic functions that TorchScript knows for the time of one export, a translation
table for dynamo, and kernels.
"""

from __future__ import annotations

import sysconfig
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
from exporter.runtimes import NO_KERNELS, Kernels, load_kernels
from exporter.worker.process.failure import Failure, wrap_errors

_Function: TypeAlias = "onnxscript.OnnxFunction[..., Any]"
_Kind: TypeAlias = Literal["v", "i", "is", "f", "fs", "b", "s", "t", "none"]

#: How `symbolic_helper.parse_args` calls the kinds of an ONNX attribute, and the exporter its name.
_KINDS: Mapping[str, _Kind] = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "FLOATS": "fs", "INTS": "is", "TENSOR": "t",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One entry with what it names."""

    entry: CustomOp
    symbolic: Callable[..., Any] | None = None
    """Of TorchScript."""
    function: _Function | None = None
    """The function that `symbolic` puts into the file."""
    target: Any = None
    """The operator that dynamo meets."""
    translation: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOps:
    """All of a model's."""

    operators: tuple[_Loaded, ...] = ()
    kernels: Kernels = NO_KERNELS

    @contextmanager
    def register_symbolics(self, opset: int) -> Iterator[None]:
        """TorchScript's exporter knows the symbolic functions for `opset` inside, not after."""
        chosen = self._chosen(opset, lambda item: item.symbolic)
        for name, item in chosen.items():
            if item.symbolic is not None:
                register_custom_op_symbolic(name, item.symbolic, opset)
        try:
            yield
        finally:
            for name in chosen:
                unregister_custom_op_symbolic(name, opset)
            for item in chosen.values():
                if item.function is not None:
                    _forget(item.function)

    def get_translations(self, opset: int) -> Mapping[Any, Callable[..., Any]]:
        """The `custom_translation_table` for `opset`."""
        chosen = self._chosen(opset, lambda item: item.translation).values()
        return {item.target: item.translation for item in chosen if item.translation is not None}

    def list_project_libraries(self, root: Path) -> tuple[str, ...]:
        """The kernel libraries that are the project's own files, relative to its root."""
        root = root.resolve()
        return tuple(
            path.relative_to(root).as_posix()
            for path in self._not_installed()
            if path.is_relative_to(root)
        )

    def list_external_libraries(self, root: Path) -> tuple[Path, ...]:
        """Those that lie elsewhere, and that no package was installed with."""
        root = root.resolve()
        return tuple(path for path in self._not_installed() if not path.is_relative_to(root))

    def _not_installed(self) -> tuple[Path, ...]:
        """An environment may lie inside the project: what is there is no file of its own."""
        installed = [Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib")]
        return tuple(
            path
            for path in self.kernels.libraries
            if not any(path.is_relative_to(at) for at in installed)
        )

    def _chosen(self, opset: int, way: Callable[[_Loaded], object]) -> dict[str, _Loaded]:
        """By operator, the entry of the highest opset that is not above `opset`."""
        fitting = [item for item in self.operators if way(item) and item.entry.opset <= opset]
        fitting.sort(key=lambda item: item.entry.opset)
        return {item.entry.name: item for item in fitting}


NO_CUSTOM_OPS = CustomOps()


def load_custom_ops(spec: ModelSpec, root: Path) -> CustomOps:
    """Imports what the entries name; the model has to be loaded before.

    Raises:
        Failure: of stage `source`, naming the entry, where one is not what it has to be.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE):
        return CustomOps(
            operators=tuple(_load(entry, folder) for entry in spec.custom_ops),
            kernels=load_kernels(spec, root),
        )


def _load(entry: CustomOp, folder: Path) -> _Loaded:
    if entry.onnxscript:
        function = load_attribute(entry.onnxscript, folder)
        if not isinstance(function, onnxscript.OnnxFunction):
            what = type(function).__name__
            raise _refused(
                entry, f"{entry.onnxscript} is a {what}, expected a function of onnxscript"
            )
        symbolic = _as_symbolic(entry, function)
        return _Loaded(entry=entry, symbolic=symbolic, function=function)
    if entry.symbolic:
        return _Loaded(entry=entry, symbolic=_function(entry, entry.symbolic, folder))
    if entry.translation:
        translation = _function(entry, entry.translation, folder)
        return _Loaded(entry=entry, target=_overload(entry), translation=translation)
    return _Loaded(entry=entry)


def _function(entry: CustomOp, source: str, folder: Path) -> Callable[..., Any]:
    found = load_attribute(source, folder)
    if not callable(found):
        raise _refused(entry, f"{source} is a {type(found).__name__}, expected a function")
    function: Callable[..., Any] = found
    return function


def _overload(entry: CustomOp) -> Any:
    namespace, name, overload = entry.name.split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        raise _refused(entry, f"PyTorch has no operator {namespace}::{name} once {_BUILT}")
    if overload not in packet.overloads():
        known = ", ".join(packet.overloads())
        hint = suggest_nearest(overload, packet.overloads())
        raise _refused(entry, f"{namespace}::{name} has the overloads {known}{hint}")
    return getattr(packet, overload)


_BUILT = "the model is built; what registers it has to be imported by the model's file"


def _refused(entry: CustomOp, why: str) -> Failure:
    return Failure(Stage.SOURCE, f"custom_ops '{entry.name}': {why}")


def _as_symbolic(entry: CustomOp, function: _Function) -> Callable[..., Any]:
    """A symbolic function that calls `function` with the operator's arguments in order."""
    signature = function.op_signature
    parameters = [(item.name, _kind(item)) for item in (signature.params if signature else ())]
    outputs = len(function.to_function_proto().output)

    def symbolic(g: Any, *arguments: Any) -> Any:
        if len(arguments) != len(parameters):
            raise TypeError(
                f"{entry.name} has {len(arguments)} arguments, "
                f"{entry.onnxscript} takes {len(parameters)}"
            )
        tensors, attributes = [], {}
        for argument, (name, kind) in zip(arguments, parameters, strict=True):
            if kind == "v":
                tensors.append(argument)
            else:  # the name says the kind, of a list that of its items
                attributes[f"{name}_{kind[0]}"] = _constant(argument, kind)
        return g.onnxscript_op(function, *tensors, outputs=outputs, **attributes)

    return symbolic


def _kind(parameter: Any) -> _Kind:
    """`v` for an input, else the kind of the attribute."""
    return _KINDS[parameter.type.name] if isinstance(parameter, AttributeParameter) else "v"


def _constant(argument: Any, kind: _Kind) -> Any:
    """The Python value of an argument that is an attribute of the function."""
    parse = symbolic_helper.parse_args(kind)(lambda _graph, value: value)
    return parse(None, argument)


def _forget(function: _Function) -> None:
    """The exporter has registered the function itself under its own name, if it was used."""
    name = f"{function.opset.domain}::{function.name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unregister_custom_op_symbolic(name, function.opset.version)
