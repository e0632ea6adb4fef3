"""What torch.export says of sizes, as the lines of a manifest.

In: what it complained of, or the ranges of a program that it captured. Out: sentences with the
lines that would satisfy it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch

from exporter.manifest import Axis, ModelSpec
from exporter.worker.inputs.call import build_call
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private import pytree

#: Two ways of torch to say it: of a capture without assertions, and of one with them.
_CONSTANTS = (
    re.compile(
        r"L(?P<path>(?:\[[^\]]+\])+)\.size\(\)\[(?P<dim>\d+)\] as dynamic "
        r"but your code specialized it to be a constant \((?P<size>\d+)\)"
    ),
    re.compile(
        r"inferred a static shape of (?P<size>\d+) for dimension "
        r"inputs(?P<path>(?:\[[^\]]+\])+)\.shape\[(?P<dim>\d+)\]"
    ),
)
#: Below `Suggested fixes:`, one per line.
_FIX = re.compile(r"^\s+(?P<name>[A-Za-z_]\w*) = (?P<fix>[^\n]+)$", re.MULTILINE)
_RANGE = re.compile(r"Dim\('\w+'(?:, min=(?P<min>\d+))?(?:, max=(?P<max>\d+))?\)")
_MULTIPLE = re.compile(r"(?P<factor>\d+)\*_?\w+")


def advise_on_failure(text: str, model: Model, spec: ModelSpec) -> tuple[str, ...]:
    """What to write, from the text of an exception.

    Args:
        text: The whole message, or the end of a traceback.
        model: Its `forward` says which input `L['x']` is.
        spec: The contract as it is.
    """
    found = [
        _always(places[match["path"]], int(match["dim"]), int(match["size"]))
        for places in (_places(model, spec),)
        for pattern in _CONSTANTS
        for match in pattern.finditer(text)
        if match["path"] in places
        and isinstance(places[match["path"]].shape[int(match["dim"])], str)
    ]
    _, _, fixes = text.partition("Suggested fixes:")
    axes = {axis.name: axis for axis in spec.axes}
    for match in _FIX.finditer(fixes):
        if match["name"] in axes:
            found += _fixed(axes[match["name"]], match["fix"].strip(), set(axes))
    return tuple(dict.fromkeys(found))


def advise_on_program(program: Any, spec: ModelSpec) -> tuple[str, ...]:
    """Where a captured program takes fewer sizes than the contract promises.

    Args:
        program: The captured `torch.export.ExportedProgram`.
        spec: The contract as it is.
    """
    found: list[str] = []
    inputs = {item.name: item for item in spec.inputs}
    metas = [
        node.meta.get("val") for node in program.graph.nodes if node.name in _user_inputs(program)
    ]
    tensors = [value for value in metas if isinstance(value, torch.Tensor)]
    if len(tensors) != len(inputs):
        return ()
    leaves = pytree.tree_leaves(_names(spec))
    for name, tensor in zip(leaves, tensors, strict=False):
        sizes: tuple[Any, ...] = tuple(tensor.shape)
        for dim, size in zip(inputs[name].shape, sizes, strict=False):
            if not isinstance(dim, str) or not isinstance(size, torch.SymInt):
                continue
            limits = program.range_constraints.get(size.node.expr)
            if limits is not None:
                found += _narrower(spec.find_axis(dim), limits)
    return tuple(dict.fromkeys(found))


def _user_inputs(program: Any) -> set[str]:
    return {str(name) for name in program.graph_signature.user_inputs}


def _names(spec: ModelSpec) -> Any:
    call = build_call(spec, {item.name: item.name for item in spec.inputs}, lambda _: None)
    return (call.args, call.kwargs)


def _places(model: Model, spec: ModelSpec) -> dict[str, Any]:
    """Inputs by where torch.export sees them: `['pair'][0]`."""
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda _: None)
    if not isinstance(model, torch.nn.Module):
        return {}
    try:
        bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return {}
    leaves, _ = pytree.tree_flatten_with_path(dict(bound.arguments))
    return {pytree.keystr(path): leaf for path, leaf in leaves if leaf is not None}


def _always(item: Any, dim: int, size: int) -> str:
    return (
        f"dimension {dim} of input '{item.name}' is always {size} in this model: "
        f"write {size} where '{item.shape[dim]}' stands"
    )


def _fixed(axis: Axis, fix: str, names: set[str]) -> Iterator[str]:
    if fix.isdigit():
        yield f"write {fix} where '{axis.name}' stands"
    elif fix in names:
        yield f"write '{fix}' where '{axis.name}' stands: the model takes them for one size"
    elif match := _RANGE.fullmatch(fix):
        yield from (
            f"axes.{axis.name}.{end} = {match[end]}" for end in ("min", "max") if match[end]
        )
    elif match := _MULTIPLE.fullmatch(fix):
        factor = int(match["factor"])
        example = -(-(axis.example or factor) // factor) * factor
        example = max(example, 2)
        yield f"axes.{axis.name} = {{ example = {example}, multiple_of = {factor} }}"


def _narrower(axis: Axis, limits: Any) -> Iterator[str]:
    reason = "torch.export captured the model for no other sizes"
    lower, upper = (_number(limits.lower), _number(limits.upper))
    # A lower limit of 2 is only what torch assumes of every dynamic size.
    if lower is not None and lower > max(axis.min, 2):
        yield f"axes.{axis.name}.min = {lower}: {reason}"
    if upper is not None and (axis.max is None or upper < axis.max):
        yield f"axes.{axis.name}.max = {upper}: {reason}"


def _number(limit: Any) -> int | None:
    """A finite limit; torch writes an infinite one as a number near that of 64 bits."""
    number = float(limit)
    return int(number) if abs(number) < 2**62 else None
