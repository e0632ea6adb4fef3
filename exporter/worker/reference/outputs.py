"""The outputs of a model in the form that its contract declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from exporter.checks.comparison.compare_outputs import find_compared_positions
from exporter.core.text import pluralize
from exporter.manifest import ModelSpec
from exporter.records.record import Stage, Status
from exporter.runtimes.session import OnnxValue
from exporter.worker.inputs.call import Tensors, from_numpy, to_numpy, view_as_real
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import internals

#: One output; a list is a sequence.
Returned: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Outputs = tuple[Returned, ...]
#: Leaves with their paths: `['logits']`, `[0]`, or "" for a single output.
_Leaves = list[tuple[str, Any]]


def list_items(output: Returned) -> list[torch.Tensor]:
    """Return the items of a sequence, or a list with the tensor."""
    return output if isinstance(output, list) else [output]


def to_value(output: Returned) -> OnnxValue:
    """Return an output as arrays of a file."""
    return [to_numpy(item) for item in output] if isinstance(output, list) else to_numpy(output)


def from_value(value: OnnxValue) -> Returned:
    """Return an output as tensors; complex numbers stay pairs."""
    return [from_numpy(item) for item in value] if isinstance(value, list) else from_numpy(value)


def list_leaves(returned: Any, spec: ModelSpec) -> list[Any]:
    """Return the objects that are outputs, as the model returned them."""
    return [leaf for _, leaf in list_named_leaves(returned, spec)]


def flatten_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """Return the outputs without a comparison with the contract.

    Raises:
        TypeError: If an output is not a tensor.
    """
    return tuple(_copy_output(leaf) for _, leaf in list_named_leaves(returned, spec))


def require_declared_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """Return the outputs if they are as declared.

    Raises:
        Failure: Stage `source`, if the model returns other outputs.
    """
    leaves = list_named_leaves(returned, spec)
    if problem := _find_problem(leaves, spec):
        described = ", ".join(f"{path or 'the result'}: {_describe(leaf)}" for path, leaf in leaves)
        message = f"the model returns {pluralize(len(leaves), 'output')} ({described}); {problem}"
        raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    for (_, leaf), output in zip(leaves, spec.outputs, strict=True):
        for item in list_items(leaf):
            if item.is_complex() != output.is_complex:
                actual = str(item.dtype).removeprefix("torch.")
                message = f"output '{output.name}' is {actual}, declared {output.dtype}"
                raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    return tuple(_copy_output(leaf) for _, leaf in leaves)


def list_named_leaves(returned: Any, spec: ModelSpec) -> _Leaves:
    """Return the leaves with their paths; a list of a script is one leaf."""
    is_leaf = (lambda value: isinstance(value, list)) if spec.capture == "script" else None
    try:
        pairs = internals.tree_flatten_with_path(returned, is_leaf=is_leaf)[0]
        named = [(internals.keystr(path), leaf) for path, leaf in pairs]
    except ValueError:  # a class that is registered without keys, such as diffusers' outputs
        leaves = internals.tree_leaves(returned, is_leaf=is_leaf)
        has_keys = isinstance(returned, Mapping) and len(returned) == len(leaves)
        named = [
            (f"[{key!r}]", leaf)
            for key, leaf in zip(returned if has_keys else range(len(leaves)), leaves, strict=True)
        ]
    return [(path, leaf) for path, leaf in named if leaf is not None]


def _copy_output(leaf: Any) -> Returned:
    """Return a copy: a model may return a buffer that its next call changes."""
    if isinstance(leaf, list):
        return [view_as_real(item.detach().to("cpu", copy=True)) for item in leaf]
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"only tensors can be outputs of a graph, not a {type(leaf).__name__}")
    return view_as_real(leaf.detach().to("cpu", copy=True))


def _find_problem(leaves: _Leaves, spec: ModelSpec) -> str:
    """Return the first problem with number, order or type of the outputs; "" if there is none."""
    names = ", ".join(item.name for item in spec.outputs)
    items = [item for _, leaf in leaves for item in (leaf if isinstance(leaf, list) else [leaf])]
    if any(_is_sparse(item) for item in items):
        return f"only dense tensors can be outputs of a graph ({names})"
    if not all(isinstance(item, torch.Tensor) for item in items):
        return f"only tensors can be outputs of a graph ({names})"
    if len(leaves) != len(spec.outputs):
        has_list = any(
            isinstance(leaf, list) or re.search(r"\[\d+\]$", path) for path, leaf in leaves
        )
        hint = ", and a list as one output has kind = 'sequence' and capture = 'script'"
        return f"the entry declares {len(spec.outputs)} ({names}){hint if has_list else ''}"
    declared = [output.name for output in spec.outputs]
    returned = [path.removeprefix(".").removeprefix("['").removesuffix("']") for path, _ in leaves]
    if returned != declared and sorted(returned) == sorted(declared):
        # Names are assigned by position, so the file would have exchanged names.
        return f"the entry declares them in another order ({names})"
    pairs = [
        (isinstance(leaf, list), out) for (_, leaf), out in zip(leaves, spec.outputs, strict=True)
    ]
    if lists := [out.name for listed, out in pairs if listed and out.kind == "tensor"]:
        return f"a list of tensors is declared with kind = 'sequence' ({', '.join(lists)})"
    if tensors := [out.name for listed, out in pairs if not listed and out.kind != "tensor"]:
        return f"declared as a sequence, but not a list: {', '.join(tensors)}"
    return ""


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided


def _describe(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        layout = f"{leaf.layout} ".removeprefix("torch.") if _is_sparse(leaf) else ""
        return f"{layout}{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return f"list of {len(leaf)}" if isinstance(leaf, list) else type(leaf).__name__


def hide_masked_values(spec: ModelSpec, inputs: Tensors, outputs: Outputs) -> Outputs:
    """Return the outputs with 0 at masked positions, which are not compared."""
    if not any(output.masked_by for output in spec.outputs):
        return outputs
    return tuple(_hide(spec, index, inputs, value) for index, value in enumerate(outputs))


def copy_masked_values(
    spec: ModelSpec, declared: tuple[Tensors, Outputs], other: tuple[Tensors, Outputs]
) -> Outputs:
    """Return other outputs with the declared values at positions that either mask excludes.

    The result differs from the declared outputs only at positions that both runs compare. An
    output with a mask and another shape becomes the declared one.
    """
    (inputs, outputs), (other_inputs, other_outputs) = declared, other
    if not any(output.masked_by for output in spec.outputs):
        return other_outputs
    columns = zip(spec.outputs, outputs, other_outputs, strict=True)
    result: list[Returned] = []
    for index, (output, value, other_value) in enumerate(columns):
        if not output.masked_by or isinstance(value, list) or isinstance(other_value, list):
            result.append(other_value)
        elif value.shape != other_value.shape:
            result.append(value)
        else:
            positions = (_find(spec, index, each, value) for each in (inputs, other_inputs))
            compared = torch.ones_like(value, dtype=torch.bool)
            for allowed in positions:
                compared &= True if allowed is None else allowed
            result.append(torch.where(compared, other_value, value))
    return tuple(result)


def _hide(spec: ModelSpec, index: int, inputs: Tensors, value: Returned) -> Returned:
    if isinstance(value, list):
        return value
    allowed = _find(spec, index, inputs, value)
    return value if allowed is None else torch.where(allowed, value, torch.zeros_like(value))


def _find(spec: ModelSpec, index: int, inputs: Tensors, value: torch.Tensor) -> torch.Tensor | None:
    mask = inputs.get(spec.outputs[index].masked_by)
    if mask is None:
        return None
    arrays = {spec.outputs[index].masked_by: to_numpy(mask)}
    positions = find_compared_positions(spec, index, arrays, value.shape)
    return None if positions is None else torch.from_numpy(positions.copy())
