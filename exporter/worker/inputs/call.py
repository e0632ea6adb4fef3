"""From tensors by name to the arguments of a call.

Input: a `ModelSpec` and a leaf for each input. Output: `Call`, the positional and keyword
arguments. Objects of user code are plain tuples and dicts here. `CallObjectWrapper` converts
them, and is then the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exporter.manifest import ModelSpec
from exporter.manifest.syntax.call_paths import Step, parse_call_path

Tensors = dict[str, torch.Tensor]
#: A nested container during construction: index or key -> leaf or container.
_Tree = dict[Step, Any]
#: The root (`args` or `kwargs`) and the steps below it.
_Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A wrapper that distinguishes a leaf that is a dict from a container."""

    value: Any


def build_call(spec: ModelSpec, leaves: Mapping[str, Any], constant: Callable[[Any], Any]) -> Call:
    """Return a call with each leaf and each constant at the position of its `at`.

    Args:
        spec: The contract.
        leaves: The tensor or its replacement, by input name. An optional input without a
            leaf is None.
        constant: Converts the value of each constant.
    """
    tree: _Tree = {"args": {}, "kwargs": {}}
    for item in spec.inputs:
        is_given = item.name in leaves or not item.optional
        _insert(tree, item.at, leaves[item.name] if is_given else None)
    for fixed in spec.constants:
        _insert(tree, fixed.at, constant(fixed.value))
    kinds = {_parse_path(container.at): container.type for container in spec.containers}
    for path in kinds:
        _get_container(tree, path)
    kinds["kwargs",] = "dict"
    return Call(
        args=_build_value(tree["args"], ("args",), kinds),
        kwargs=_build_value(tree["kwargs"], ("kwargs",), kinds),
    )


def build_tensor_call(spec: ModelSpec, tensors: Tensors) -> Call:
    """Return the call with a clone of each tensor, because a model may change its inputs.

    An integer argument is a Python number, which is symbolic under dynamo. Other numbers stay
    tensors, because dynamo would convert them to constants: `CallObjectWrapper` reads their
    values. TorchScript's compiler accepts all kinds of numbers.
    """
    is_script = spec.capture == "script"
    leaves: dict[str, Any] = {name: tensor.clone() for name, tensor in tensors.items()}
    for item in spec.inputs:
        if item.scalar and (is_script or item.dtype == "int64"):
            leaves[item.name] = tensors[item.name].item()
    return build_call(spec, leaves, lambda value: value)


def _parse_path(at: str) -> _Path:
    root, steps = parse_call_path(at)
    return (root, *steps)


def _insert(tree: _Tree, at: str, value: Any) -> None:
    *parents, last = _parse_path(at)
    _get_container(tree, tuple(parents))[last] = _Leaf(value)


def _get_container(tree: _Tree, path: _Path) -> _Tree:
    """Return the container at a path; create it if it is missing."""
    node = tree
    for step in path:
        node = node.setdefault(step, {})
    return node


def _build_value(node: Any, path: _Path, kinds: Mapping[_Path, str]) -> Any:
    """Return a leaf or a container; by default, indices give a tuple and keys give a dict."""
    if isinstance(node, _Leaf):
        return node.value
    items = {key: _build_value(value, (*path, key), kinds) for key, value in node.items()}
    kind = kinds.get(path, "")
    if kind == "dict" or not all(isinstance(key, int) for key in items):
        return items
    values = [items[index] for index in sorted(items, key=int)]
    return values if kind == "list" else tuple(values)
