"""The model's call, and the arguments of `torch.onnx.export`, as Python source.

In: a `ModelSpec`. Out: expressions. What the worker builds as values is written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.calls import parse_at
from exporter.manifest.exporters import OPTIONS, WEIGHTS_AS_INPUTS
from exporter.manifest.spec import ExporterName
from exporter.values import Plain

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


def call_text(spec: ModelSpec) -> CallText:
    """The call, over a table `inputs` of tensors by name."""
    return _call(spec, lambda item: f"inputs[{item.name!r}].clone()", repr)


def hint_text(spec: ModelSpec) -> CallText:
    """In place of each tensor its dynamic dimensions."""
    return _call(spec, lambda item: _hints(item, spec), lambda _: "None")


def dynamic_axes(spec: ModelSpec) -> dict[str, dict[int, str]]:
    """As `torch.onnx.export` takes them under TorchScript."""
    shapes = {item.name: item.shape for item in spec.inputs}
    shapes |= {item.name: item.shape for item in spec.outputs}
    named = {
        name: {index: dim for index, dim in enumerate(shape) if isinstance(dim, str)}
        for name, shape in shapes.items()
    }
    return {name: axes for name, axes in named.items() if axes}


def options_text(spec: ModelSpec, exporter: ExporterName) -> dict[str, str]:
    """The other arguments of `torch.onnx.export`, as expressions by name."""
    taken = OPTIONS[exporter] - set(_OURS[exporter])
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
    spec: ModelSpec, leaf: Callable[[Input], str], constant: Callable[[object], str]
) -> CallText:
    tree: _Tree = {"args": {}, "kwargs": {}}
    names: _Tree = {"args": {}, "kwargs": {}}
    for item in spec.inputs:
        _place(tree, item.at, leaf(item))
        _place(names, item.at, item.name)
    for fixed in spec.constants:
        _place(tree, fixed.at, constant(fixed.value))
    return CallText(
        args=_written(tree["args"], is_args=True),
        kwargs=_written(tree["kwargs"], is_args=False),
        names=(*_leaves(names["args"]), *_leaves(names["kwargs"])),
    )


def _place(tree: _Tree, at: str, leaf: str) -> None:
    root, steps = parse_at(at)
    node = tree
    for step in (root, *steps[:-1]):
        inner = node.setdefault(step, {})
        if isinstance(inner, str):
            raise ValueError(f"'{at}' lies inside another value")
        node = inner
    node[steps[-1]] = leaf


def _written(node: _Tree | str, *, is_args: bool | None = None) -> str:
    """Index keys make a tuple, names make a dict; `is_args` says it for an empty one."""
    if isinstance(node, str):
        return node
    is_tuple = all(isinstance(key, int) for key in node) if is_args is None else is_args
    if is_tuple:
        items = [_written(node[key]) for key in sorted(node, key=int)]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return "{" + ", ".join(f"{key!r}: {_written(value)}" for key, value in node.items()) + "}"


def _leaves(node: _Tree | str) -> list[str]:
    if isinstance(node, str):
        return [node]
    is_tuple = all(isinstance(key, int) for key in node)
    keys = sorted(node, key=int) if is_tuple else list(node)
    return [name for key in keys for name in _leaves(node[key])]


def _hints(item: Input, spec: ModelSpec) -> str:
    named = {index: dim for index, dim in enumerate(item.shape) if isinstance(dim, str)}
    numbers = {axis.name: number for number, axis in enumerate(spec.axes)}
    hints = (f"{i}: {_hint(spec.axis(dim), numbers[dim])}" for i, dim in named.items())
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
