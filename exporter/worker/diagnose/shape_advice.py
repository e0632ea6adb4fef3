"""Advice about sizes: the messages of torch.export as lines of a manifest."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from exporter.jobs.reference import Sample
from exporter.manifest import Axis, Input, ModelSpec
from exporter.worker.inputs.call import build_call
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private import pytree

#: Two messages of torch: of a capture without assertions, and of one with assertions.
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
#: One per line after `Suggested fixes:`.
_FIX = re.compile(r"^\s+(?P<name>[A-Za-z_]\w*) = (?P<fix>[^\n]+)$", re.MULTILINE)
_RANGE = re.compile(r"Dim\('\w+'(?:, min=(?P<min>\d+))?(?:, max=(?P<max>\d+))?\)")
_MULTIPLE = re.compile(r"(?P<factor>\d+)\*_?\w+")


def advise_on_failure(
    text: str, model: Model, spec: ModelSpec, samples: Sequence[Sample] = ()
) -> tuple[str, ...]:
    """Return advice from the text of an exception.

    Args:
        text: The full message or the end of a traceback.
        model: The model; its `forward` shows which input `L['x']` is.
        spec: The current contract.
        samples: PyTorch's runs: if one has another size, only the capture fixed the size.
    """
    accepted = {item for sample in samples if not sample.error for item in sample.axes.items()}
    advice: list[str] = []
    others: list[str] = []
    inputs = _map_paths(model, spec)
    for pattern in _CONSTANTS:
        for match in pattern.finditer(text):
            item = inputs.get(match["path"])
            dim, size = int(match["dim"]), match["size"]
            axis = item.shape[dim] if item is not None else None
            if item is None or not isinstance(axis, str):
                continue
            if any(name == axis and other != int(size) for name, other in accepted):
                others.append(
                    f"torch.export fixed dimension {dim} of input '{item.name}' to {size}, but "
                    "PyTorch accepts other sizes: compute with `shape` in the model, without "
                    "`int()` and branches on this size"
                )
                continue
            advice.append(
                f"dimension {dim} of input '{item.name}' is always {size} in this model: "
                f"replace '{axis}' by {size}"
            )
    _, _, fixes = text.partition("Suggested fixes:")
    axes = {axis.name: axis for axis in spec.axes}
    for match in _FIX.finditer(fixes):
        is_size = match["fix"].strip().isdigit() and accepted
        if match["name"] in axes and not is_size:  # the samples decide about a fixed size
            advice += _translate_fix(axes[match["name"]], match["fix"].strip(), set(axes))
    return (*dict.fromkeys(others), *_mark_weaker(advice))


def advise_on_program(program: Any, spec: ModelSpec, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return advice if a captured program accepts fewer sizes than the contract.

    Args:
        program: The captured `torch.export.ExportedProgram`.
        spec: The current contract.
        sizes: The sizes of the failing sample; a range that contains them is not the reason.
    """
    advice: list[str] = []
    inputs = {item.name: item for item in spec.inputs}
    user_inputs = {str(name) for name in program.graph_signature.user_inputs}
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in user_inputs]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if len(tensors) != len(inputs):
        return ()
    call = build_call(spec, {name: name for name in inputs}, lambda _: None)
    names = pytree.tree_leaves((call.args, call.kwargs))
    for name, tensor in zip(names, tensors, strict=False):
        symbols: tuple[Any, ...] = tuple(tensor.shape)
        for dim, size in zip(inputs[name].shape, symbols, strict=False):
            if not isinstance(dim, str) or not isinstance(size, torch.SymInt):
                continue
            limits = program.range_constraints.get(size.node.expr)
            if limits is not None and dim in sizes:
                advice += _compare_range(spec.find_axis(dim), limits, sizes[dim])
    return _mark_weaker(advice)


def _mark_weaker(advice: list[str]) -> tuple[str, ...]:
    """Return each line once; a reader must see that it weakens a promise."""
    return tuple(f"{line} (promises less)" for line in dict.fromkeys(advice))


def _map_paths(model: Model, spec: ModelSpec) -> dict[str, Input]:
    """Return the inputs by their paths in messages of torch.export, such as `['pair'][0]`."""
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda _: None)
    if not isinstance(model, torch.nn.Module):
        return {}
    try:
        bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return {}
    leaves, _ = pytree.tree_flatten_with_path(dict(bound.arguments))
    return {pytree.keystr(path): leaf for path, leaf in leaves if leaf is not None}


def _translate_fix(axis: Axis, fix: str, names: set[str]) -> Iterator[str]:
    if fix.isdigit():
        yield f"replace '{axis.name}' by {fix}"
    elif fix in names:
        yield f"replace '{axis.name}' by '{fix}': the model requires equal sizes"
    elif match := _RANGE.fullmatch(fix):
        for end in ("min", "max"):
            if match[end]:
                yield f"axes.{axis.name}.{end} = {match[end]}"
    elif match := _MULTIPLE.fullmatch(fix):
        factor = int(match["factor"])
        example = max(-(-(axis.example or factor) // factor) * factor, 2)
        yield f"axes.{axis.name} = {{ example = {example}, multiple_of = {factor} }}"


def _compare_range(axis: Axis, limits: Any, size: int) -> Iterator[str]:
    if axis.rule:
        return  # torch infers its limits from those of the other axes
    reason = "torch.export captured the model for these sizes only"
    lower, upper = (_read_limit(limits.lower), _read_limit(limits.upper))
    # torch assumes a lower limit of 2 for every dynamic size.
    if lower is not None and lower > max(axis.min, 2) and size < lower:
        yield f"axes.{axis.name}.min = {lower}: {reason}"
    if upper is not None and (axis.max is None or upper < axis.max) and size > upper:
        yield f"axes.{axis.name}.max = {upper}: {reason}"


def _read_limit(limit: Any) -> int | None:
    """Return a finite limit, or None; torch writes infinity as a number near 2**63."""
    number = float(limit)
    return int(number) if abs(number) < 2**62 else None
