"""What a model returned, as the outputs that its contract declares.

In: whatever `forward` returned. Out: one tensor, or for a sequence one list of tensors, per output.
Complex numbers are pairs along a last dimension, as a file has them.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import torch

from exporter.manifest import ModelSpec, Output
from exporter.records.record import Stage, Status
from exporter.runtimes.values import OnnxValue
from exporter.worker.inputs.arrays import from_numpy, to_numpy, view_as_real
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import pytree

#: One output; a list is a sequence.
Returned: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Outputs = tuple[Returned, ...]
#: A leaf with its path: `['logits']`, `[0]`, or nothing.
_Leaves = list[tuple[str, Any]]


def list_items(output: Returned) -> list[torch.Tensor]:
    """The items of a sequence; of a tensor, itself."""
    return output if isinstance(output, list) else [output]


def to_value(output: Returned) -> OnnxValue:
    """As arrays of a file."""
    return [to_numpy(item) for item in output] if isinstance(output, list) else to_numpy(output)


def from_value(value: OnnxValue) -> Returned:
    """As tensors; complex numbers stay the pairs that outputs have them in."""
    if isinstance(value, list):
        return [from_numpy(item) for item in value]
    return from_numpy(value)


def flatten_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """The outputs, whether they are those that are declared or not.

    Raises:
        TypeError: where something is no tensor.
    """
    return tuple(_as_output(leaf) for _, leaf in _flattened(returned, spec))


def require_declared_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """The outputs, held against the declared ones.

    Raises:
        Failure: of stage `source`, where the model returns something else than declared.
    """
    leaves = _flattened(returned, spec)
    if problem := _problem(leaves, spec):
        raise Failure(Stage.SOURCE, f"{_told(leaves)}; {problem}", status=Status.FAIL)
    for (_, leaf), output in zip(leaves, spec.outputs, strict=True):
        if problem := _other_numbers(leaf, output):
            raise Failure(Stage.SOURCE, problem, status=Status.FAIL)
    return tuple(_as_output(leaf) for _, leaf in leaves)


def _flattened(returned: Any, spec: ModelSpec) -> _Leaves:
    """Leaves with their paths. A script keeps lists whole, all else puts out each item."""
    is_leaf = _is_list if spec.capture == "script" else None
    pairs, _ = pytree.tree_flatten_with_path(returned, is_leaf=is_leaf)
    return [(pytree.keystr(path), leaf) for path, leaf in pairs if leaf is not None]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _as_output(leaf: Any) -> Returned:
    if isinstance(leaf, list):
        return [_copied(item) for item in leaf]
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"only tensors can be outputs of a graph, not a {type(leaf).__name__}")
    return _copied(leaf)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy: a model may return a buffer of its own, which its next call writes into."""
    return view_as_real(tensor.detach().to("cpu", copy=True))


def _told(leaves: _Leaves) -> str:
    described = ", ".join(f"{path or 'the result'}: {_kind(leaf)}" for path, leaf in leaves)
    return f"the model returns {len(leaves)} outputs ({described})"


def _problem(leaves: _Leaves, spec: ModelSpec) -> str:
    """What is wrong with the outputs as a whole; empty where nothing is."""
    names = ", ".join(item.name for item in spec.outputs)
    if not all(_is_output(leaf) for _, leaf in leaves):
        what = (
            "only dense tensors" if any(_is_sparse(leaf) for _, leaf in leaves) else "only tensors"
        )
        return f"{what} can be outputs of a graph ({names})"
    if len(leaves) != len(spec.outputs):
        is_listed = any(_is_list(leaf) or re.search(r"\[\d+\]$", path) for path, leaf in leaves)
        hint = "; a list as one output has kind = 'sequence' and capture = 'script'"
        return f"declared are {len(spec.outputs)} ({names}){hint if is_listed else ''}"
    if _is_shuffled([path for path, _ in leaves], spec):
        # Names are given by position: each output would bear the other's.
        return f"declared in another order are ({names})"
    pairs = list(zip([leaf for _, leaf in leaves], spec.outputs, strict=True))
    if lists := [out.name for leaf, out in pairs if _is_list(leaf) and out.kind == "tensor"]:
        return f"a list of tensors is declared with kind = 'sequence' ({', '.join(lists)})"
    if single := [out.name for leaf, out in pairs if not _is_list(leaf) and out.kind != "tensor"]:
        return f"declared as a sequence, and no list: {', '.join(single)}"
    return ""


def _is_output(leaf: Any) -> bool:
    items = leaf if isinstance(leaf, list) else [leaf]
    return all(isinstance(item, torch.Tensor) and not _is_sparse(item) for item in items)


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided


def _is_shuffled(paths: list[str], spec: ModelSpec) -> bool:
    """Whether the model's own names of its outputs are the declared ones in another order."""
    own = [path.removeprefix(".").removeprefix("['").removesuffix("']") for path in paths]
    declared = [item.name for item in spec.outputs]
    return own != declared and sorted(own) == sorted(declared)


def _other_numbers(leaf: Any, output: Output) -> str:
    """Where a complex output is declared real, or a real one complex; else empty."""
    for item in list_items(leaf):
        if item.is_complex() != output.is_complex:
            return f"output '{output.name}' is {_dtype(item)}, declared {output.dtype}"
    return ""


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        layout = f"{leaf.layout} ".removeprefix("torch.") if _is_sparse(leaf) else ""
        return f"{layout}{_dtype(leaf)} {list(leaf.shape)}"
    return f"list of {len(leaf)}" if isinstance(leaf, list) else type(leaf).__name__


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
