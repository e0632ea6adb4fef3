"""The text of the call in a reproducer's script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from exporter.core.frozen_model import Plain
from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.resolved.model import ExporterName
from exporter.manifest.rules.sources import EXPORTER_OPTIONS, WEIGHTS_AS_INPUTS
from exporter.manifest.syntax.values import Step, assemble_call
from exporter.records.record import Route

_MODES = {"eval": "EVAL", "train": "TRAINING", "keep": "PRESERVE"}
_ENUMS = {"training": "TrainingMode", "operator_export_type": "OperatorExportTypes"}
#: Options for writing and checking the artifact, which are no arguments in the script.
_OMITTED_OPTIONS: Mapping[ExporterName, tuple[str, ...]] = {
    "dynamo": ("external_data", "custom_opsets"),
    "torchscript": ("external_data",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """Expressions for one call."""

    args: str
    kwargs: str
    names: tuple[str, ...]
    """The inputs in the order of the call."""


def format_call(spec: ModelSpec) -> CallText:
    """Return the call, with tensors from a table `inputs`."""
    values = [(item.at, _format_argument(item)) for item in spec.inputs]
    values += [(fixed.at, repr(fixed.value)) for fixed in spec.constants]
    return _assemble(spec, values, {each.at: each.type for each in spec.containers})


def format_hints(spec: ModelSpec) -> CallText:
    """Return the call with the dynamic dimensions in place of each tensor."""
    values = [(item.at, format_hint(item, spec)) for item in spec.inputs]
    values += [(fixed.at, "None") for fixed in spec.constants]
    types = {each.at: "" if each.is_object else each.type for each in spec.containers}
    return _assemble(spec, values, types)


def format_flat_call(spec: ModelSpec, format_input: Callable[[Input], str]) -> str:
    """Return a tuple with one expression for each input, in the order of the file."""
    return _format_tuple([format_input(item) for item in spec.inputs])


def format_flat_argument(item: Input) -> str:
    """Return an input of a flat call, in which dynamo accepts integers but no other numbers."""
    if is_symbolic_integer(item):
        return _format_argument(item)
    return f"inputs[{item.name!r}].clone()"


def is_symbolic_integer(item: Input) -> bool:
    """Return True if torch.export treats the input as a symbolic integer."""
    return item.scalar and item.dtype == "int64"


def split_reference(source: str) -> tuple[str, str]:
    """Return the module and the attribute of a reference; "" for a path that is no module."""
    module, _, attribute = source.rpartition(":")
    if not module.endswith(".py"):
        return module, attribute
    parts = PurePosixPath(module).with_suffix("").parts
    return (".".join(parts) if all(part.isidentifier() for part in parts) else ""), attribute


def list_dynamic_axes(spec: ModelSpec) -> dict[str, dict[int, str]]:
    """Return `dynamic_axes` for `torch.onnx.export` with TorchScript."""
    axes = {
        name: {index: dim for index, dim in enumerate(shape) if isinstance(dim, str)}
        for name, shape in [(item.name, item.shape) for item in (*spec.inputs, *spec.outputs)]
    }
    return {name: dims for name, dims in axes.items() if dims}


def format_options(spec: ModelSpec, route: Route) -> dict[str, str]:
    """Return the other arguments of `torch.onnx.export` as expressions by name."""
    exporter = route.torch_exporter
    names = EXPORTER_OPTIONS[exporter] - set(_OMITTED_OPTIONS[exporter])
    options: dict[str, Plain] = (
        {"verbose": False} if exporter == "dynamo" else {"training": _MODES[spec.mode]}
    )
    options |= {name: value for name, value in spec.options.items() if name in names}
    if not route.optimize:
        options["optimize"] = False
    if spec.weights_are_inputs:  # the script's file contains the weights and computes the same
        options |= WEIGHTS_AS_INPUTS[exporter] | {"export_params": True}
    return {
        name: f"torch.onnx.{_ENUMS[name]}.{value}" if name in _ENUMS else _format_option(value)
        for name, value in options.items()
    }


def _format_option(value: Plain) -> str:
    """Return a value; a list contains types of modules."""
    if isinstance(value, list):
        return "{" + ", ".join(_format_reference(str(item)) for item in value) + "}"
    return repr(value)


def _format_reference(reference: str) -> str:
    module, attribute = split_reference(reference)
    return f"getattr(importlib.import_module({module!r}), {attribute!r})"


def format_hint(item: Input, spec: ModelSpec) -> str:
    if is_symbolic_integer(item):
        return "Dim.DYNAMIC"
    numbers = {axis.name: number for number, axis in enumerate(spec.axes)}
    hints = (
        f"{index}: {_format_dim(spec.find_axis(dim), numbers[dim])}"
        for index, dim in enumerate(item.shape)
        if isinstance(dim, str)
    )
    return "{" + ", ".join(hints) + "}"


def _assemble(
    spec: ModelSpec, values: Sequence[tuple[str, str]], types: Mapping[str, str]
) -> CallText:
    args, kwargs = assemble_call(values, types, _format_container)
    inputs: list[tuple[str, tuple[str, ...]]] = [(item.at, (item.name,)) for item in spec.inputs]
    names = assemble_call(
        inputs,
        {},
        lambda _, items: tuple(
            chain.from_iterable(items.values() if isinstance(items, dict) else items)
        ),
    )
    return CallText(args=args, kwargs=kwargs, names=names[0] + names[1])


def _format_argument(item: Input) -> str:
    tensor = f"inputs[{item.name!r}]"
    if item.scalar:
        return f"as_number({tensor})"
    if item.optional:
        return f"(None if {item.name!r} not in inputs else {tensor}.clone())"
    return f"{tensor}.clone()"


def _format_container(type: str, items: list[str] | dict[Step, str]) -> str:
    """Return a container; by default, indices give a tuple and keys give a dict."""
    function = ""
    if ":" in type:
        function = _format_reference(type)
    if isinstance(items, dict):
        text = "{" + ", ".join(f"{key!r}: {value}" for key, value in items.items()) + "}"
        return f"{function}(**{text})" if function else text
    if function:
        return f"{function}({', '.join(items)})"
    return f"[{', '.join(items)}]" if type == "list" else _format_tuple(items)


def _format_tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _format_dim(axis: Axis, number: int) -> str:
    if axis.factors is not None:
        least, most = axis.factors
        return f"{axis.multiple_of} * Dim('_factor{number}', min={least}, max={most})"
    if axis.rule:
        return "Dim.DYNAMIC"
    limits = {"min": axis.min if axis.min > 1 else None, "max": axis.max}
    text = ", ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
    return f"Dim.DYNAMIC({text})" if text else "Dim.DYNAMIC"
