"""The model's call, and the arguments of `torch.onnx.export`, as Python source.

In: a `ModelSpec`. Out: expressions. What the worker builds as values is written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from exporter.core.frozen_model import Plain
from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.rules.exporters import EXPORTER_OPTIONS, WEIGHTS_AS_INPUTS
from exporter.manifest.spec.model import ExporterName
from exporter.manifest.syntax.call_paths import Step, parse_call_path

#: A container of the call while it is laid out: index or key -> expression or container.
_Tree: TypeAlias = "dict[int | str, _Tree | str]"

_MODES = {"eval": "EVAL", "train": "TRAINING", "keep": "PRESERVE"}
_ENUMS = {"training": "TrainingMode", "operator_export_type": "OperatorExportTypes"}
#: What the artifact is written by or held to, which is no argument of the exporter's here.
_OURS: Mapping[ExporterName, tuple[str, ...]] = {
    "dynamo": ("external_data", "custom_opsets"),
    "torchscript": ("external_data",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """Expressions for one call."""

    args: str
    kwargs: str
    names: tuple[str, ...]
    """The inputs in the order in which the call holds them."""


def format_call(spec: ModelSpec) -> CallText:
    """The call, over a table `inputs` of tensors by name."""
    return _call(spec, _leaf, repr, makes_objects=True)


def format_hints(spec: ModelSpec) -> CallText:
    """In place of each tensor its dynamic dimensions."""
    return _call(spec, lambda item: _hints(item, spec), lambda _: "None", makes_objects=False)


def format_flat_call(spec: ModelSpec, leaf: Callable[[Input], str]) -> str:
    """One expression per input, in the order of the file, as a tuple."""
    return _tuple([leaf(item) for item in spec.inputs])


def format_flat_argument(item: Input) -> str:
    """What stands for an input where all of them are given in a row: dynamo knows integers."""
    return _leaf(item) if is_symbolic_integer(item) else f"inputs[{item.name!r}].clone()"


def flat_hint_formatter(spec: ModelSpec) -> Callable[[Input], str]:
    """The dynamic dimensions of such an argument."""
    return lambda item: _hints(item, spec)


def is_symbolic_integer(item: Input) -> bool:
    """Whether torch.export takes it as a symbolic integer."""
    return item.scalar and item.dtype == "int64"


def split_reference(source: str) -> tuple[str, str]:
    """Module and attribute of a reference; the module is empty where it cannot be imported."""
    where, _, attribute = source.rpartition(":")
    if not where.endswith(".py"):
        return where, attribute
    parts = PurePosixPath(where).with_suffix("").parts
    return (".".join(parts) if all(part.isidentifier() for part in parts) else ""), attribute


def _leaf(item: Input) -> str:
    given = f"inputs[{item.name!r}]"
    if item.scalar:
        return f"as_number({given})"
    if item.optional:
        return f"(None if {item.name!r} not in inputs else {given}.clone())"
    return f"{given}.clone()"


def list_dynamic_axes(spec: ModelSpec) -> dict[str, dict[int, str]]:
    """As `torch.onnx.export` takes them under TorchScript."""
    shapes = {item.name: item.shape for item in spec.inputs}
    shapes |= {item.name: item.shape for item in spec.outputs}
    named = {
        name: {index: dim for index, dim in enumerate(shape) if isinstance(dim, str)}
        for name, shape in shapes.items()
    }
    return {name: axes for name, axes in named.items() if axes}


def format_options(spec: ModelSpec, exporter: ExporterName) -> dict[str, str]:
    """The other arguments of `torch.onnx.export`, as expressions by name."""
    taken = EXPORTER_OPTIONS[exporter] - set(_OURS[exporter])
    given: dict[str, Plain] = (
        {"verbose": False} if exporter == "dynamo" else {"training": _MODES[spec.mode]}
    )
    given |= {name: value for name, value in spec.options.items() if name in taken}
    if spec.weights_are_inputs:  # the script's file keeps them, and computes the same
        given |= WEIGHTS_AS_INPUTS[exporter] | {"export_params": True}
    return {
        name: f"torch.onnx.{_ENUMS[name]}.{value}" if name in _ENUMS else repr(value)
        for name, value in given.items()
    }


def _call(
    spec: ModelSpec,
    leaf: Callable[[Input], str],
    constant: Callable[[object], str],
    *,
    makes_objects: bool,
) -> CallText:
    tree: _Tree = {"args": {}, "kwargs": {}}
    names: _Tree = {"args": {}, "kwargs": {}}
    for item in spec.inputs:
        _place(tree, item.at, leaf(item))
        _place(names, item.at, item.name)
    for fixed in spec.constants:
        _place(tree, fixed.at, constant(fixed.value))
    kinds = {_steps(each.at): each.type for each in spec.containers}
    for steps in kinds:
        _inside(tree, steps)
    if not makes_objects:
        kinds = {steps: kind for steps, kind in kinds.items() if ":" not in kind}
    return CallText(
        args=_written(tree["args"], ("args",), {**kinds, ("args",): "tuple"}),
        kwargs=_written(tree["kwargs"], ("kwargs",), {**kinds, ("kwargs",): "dict"}),
        names=(*_leaves(names["args"]), *_leaves(names["kwargs"])),
    )


def _place(tree: _Tree, at: str, leaf: str) -> None:
    *parents, last = _steps(at)
    _inside(tree, tuple(parents))[last] = leaf


def _steps(at: str) -> tuple[Step, ...]:
    root, steps = parse_call_path(at)
    return (root, *steps)


def _inside(tree: _Tree, steps: tuple[Step, ...]) -> _Tree:
    """The container at a place, made where it is missing."""
    node = tree
    for step in steps:
        inner = node.setdefault(step, {})
        if isinstance(inner, str):
            raise ValueError(f"{steps} lies inside another value")
        node = inner
    return node


def _written(
    node: _Tree | str, steps: tuple[Step, ...], kinds: Mapping[tuple[Step, ...], str]
) -> str:
    """Positions make a tuple and keys a dict, where no type is said; objects are made of them."""
    if isinstance(node, str):
        return node
    inner = {key: _written(value, (*steps, key), kinds) for key, value in node.items()}
    kind = kinds.get(steps, "")
    if kind == "dict" or not all(isinstance(key, int) for key in inner):
        text = "{" + ", ".join(f"{key!r}: {value}" for key, value in inner.items()) + "}"
        return f"{_maker(kind)}(**{text})" if ":" in kind else text
    items = [inner[key] for key in sorted(inner, key=int)]
    text = ", ".join(items)
    if ":" in kind:
        return f"{_maker(kind)}({text})"
    return f"[{text}]" if kind == "list" else _tuple(items)


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _maker(reference: str) -> str:
    module, attribute = split_reference(reference)
    return f"getattr(importlib.import_module({module!r}), {attribute!r})"


def _leaves(node: _Tree | str) -> list[str]:
    if isinstance(node, str):
        return [node]
    is_tuple = all(isinstance(key, int) for key in node)
    keys = sorted(node, key=int) if is_tuple else list(node)
    return [name for key in keys for name in _leaves(node[key])]


def _hints(item: Input, spec: ModelSpec) -> str:
    if is_symbolic_integer(item):
        return "Dim.DYNAMIC"
    named = {index: dim for index, dim in enumerate(item.shape) if isinstance(dim, str)}
    numbers = {axis.name: number for number, axis in enumerate(spec.axes)}
    hints = (f"{i}: {_hint(spec.find_axis(dim), numbers[dim])}" for i, dim in named.items())
    return "{" + ", ".join(hints) + "}"


def _hint(axis: Axis, number: int) -> str:
    if axis.factors is not None:
        least, most = axis.factors
        return f"{axis.multiple_of} * Dim('_factor{number}', min={least}, max={most})"
    limits: Mapping[str, int | None] = {
        "min": axis.min if axis.min > 1 else None,
        "max": axis.max,
    }
    said = ", ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
    return f"Dim.DYNAMIC({said})" if said else "Dim.DYNAMIC"
