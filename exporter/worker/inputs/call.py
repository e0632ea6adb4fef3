"""From tensors by name to the call that holds them.

In: a `ModelSpec` and a leaf for each input. Out: `Call`: the positional and keyword arguments.

Objects of user code stand as plain tuples and dicts of what they hold: `objects.Assembled`, which
then is the model, makes the objects of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exporter.manifest import ModelSpec
from exporter.manifest.syntax.call_paths import Step, parse_call_path

Tensors = dict[str, torch.Tensor]
#: A nested container while it is built: index or key -> leaf or container.
_Tree = dict[Step, Any]
#: The root of a place, and its steps.
_Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def build_call(spec: ModelSpec, leaves: Mapping[str, Any], constant: Callable[[Any], Any]) -> Call:
    """Puts one leaf per input where its `at` says, and the constants where theirs say.

    Args:
        spec: The contract.
        leaves: By input name: its tensor, or whatever shall stand in the same place. Optional
            inputs that it lacks are None.
        constant: Applied to each constant's value (to put something else in its place).
    """
    tree: _Tree = {"args": {}, "kwargs": {}}
    for item in spec.inputs:
        is_there = item.name in leaves or not item.optional
        _place(tree, item.at, _Leaf(leaves[item.name] if is_there else None))
    for fixed in spec.constants:
        _place(tree, fixed.at, _Leaf(constant(fixed.value)))
    kinds: dict[_Path, str] = {_path(each.at): each.type for each in spec.containers}
    for path in kinds:
        _node(tree, path)
    kinds["kwargs",] = "dict"
    return Call(
        args=_built(tree["args"], ("args",), kinds),
        kwargs=_built(tree["kwargs"], ("kwargs",), kinds),
    )


def build_tensor_call(spec: ModelSpec, tensors: Tensors) -> Call:
    """The call with these tensors; each is cloned, since models change their inputs in place.

    What the model takes as an integer is a Python number here: under dynamo it becomes a symbolic
    one. Floats and truth values stay tensors, which `objects.Assembled` takes the number out of:
    dynamo would keep their values. TorchScript's compiler has kinds of input for all of them.
    """
    is_script = spec.capture == "script"
    leaves: dict[str, Any] = {name: tensor.clone() for name, tensor in tensors.items()}
    for item in spec.inputs:
        if item.scalar and (is_script or item.dtype == "int64"):
            leaves[item.name] = tensors[item.name].item()
    return build_call(spec, leaves, lambda value: value)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Tells a leaf that is a dict from a container."""

    value: Any


def _path(at: str) -> _Path:
    root, steps = parse_call_path(at)
    return (root, *steps)


def _place(tree: _Tree, at: str, leaf: _Leaf) -> None:
    *parents, last = _path(at)
    _node(tree, tuple(parents))[last] = leaf


def _node(tree: _Tree, path: _Path) -> _Tree:
    """The container at a path, made where it is missing."""
    node = tree
    for step in path:
        node = node.setdefault(step, {})
    return node


def _built(node: Any, path: _Path, kinds: Mapping[_Path, str]) -> Any:
    """Positions make a tuple and keys a dict, where no type is said."""
    if isinstance(node, _Leaf):
        return node.value
    inner = {key: _built(value, (*path, key), kinds) for key, value in node.items()}
    kind = kinds.get(path, "")
    if kind == "dict" or not all(isinstance(key, int) for key in inner):
        return inner
    items = [inner[index] for index in sorted(inner, key=int)]
    return items if kind == "list" else tuple(items)
