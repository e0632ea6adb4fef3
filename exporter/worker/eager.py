"""PyTorch itself, eagerly, on one input set: as declared, and in float64.

In: a model, its contract and named tensors. Out: its outputs as a flat tuple of tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporter.manifest import ModelSpec
from exporter.record import Stage, Status
from exporter.worker.arrays import real_view
from exporter.worker.call import Tensors, tensor_call
from exporter.worker.failure import Failure, one_line, stage_of
from exporter.worker.objects import note_objects, taken_apart
from exporter.worker.program import float64_module, program_of
from exporter.worker.source import Model

#: Real ones: complex outputs are pairs along a last dimension, as a file has them.
Outputs = tuple[torch.Tensor, ...]


class State:
    """The buffers of a model, which a forward pass may change (BatchNorm in training mode)."""

    def __init__(self, model: Model) -> None:
        self._live: dict[str, torch.Tensor] = {}
        if isinstance(model, torch.nn.Module):
            self._live = dict(model.named_buffers())
        self._kept = {name: buffer.clone() for name, buffer in self._live.items()}

    def restore(self) -> None:
        """Puts every buffer back to what it was."""
        with torch.no_grad():
            for name, buffer in self._live.items():
                if not buffer.is_inference() and buffer.shape == self._kept[name].shape:
                    buffer.copy_(self._kept[name])


def run_declared(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """The outputs on the declared inputs, held against the declared outputs.

    Raises:
        Failure: of stage `source`, where the model does not run, or returns something else than
            one tensor per declared output.
    """
    with stage_of(Stage.SOURCE):
        returned = taken_apart(_call(model, spec, inputs))
        note_objects(model, returned)
        leaves = flatten_outputs(returned)
    if any(not isinstance(leaf, torch.Tensor) for _, leaf in leaves):
        problem = "only tensors can be outputs of a graph"
    elif len(leaves) != len(spec.outputs):
        problem = f"declared are {len(spec.outputs)}"
    elif _is_shuffled([path for path, _ in leaves], spec):
        # Names are given by position: each output would bear the other's.
        problem = "declared in another order are"
    elif misnamed := _neither_or_both_complex([leaf for _, leaf in leaves], spec):
        raise Failure(Stage.SOURCE, misnamed, status=Status.FAIL)
    else:
        return tuple(real_view(leaf.detach().cpu()) for _, leaf in leaves)
    described = ", ".join(f"{path or 'the result'}: {_kind(leaf)}" for path, leaf in leaves)
    names = ", ".join(item.name for item in spec.outputs)
    raise Failure(
        Stage.SOURCE,
        f"the model returns {len(leaves)} outputs ({described}); {problem} ({names})",
        status=Status.FAIL,
    )


def run(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """The outputs on one input set.

    Raises:
        Failure: of stage `source`, where the model does not run on these inputs.
    """
    with stage_of(Stage.SOURCE):
        leaves = flatten_outputs(_call(model, spec, inputs))
        return tuple(real_view(leaf.detach().cpu()) for _, leaf in leaves)


def float64_twin(model: Model) -> tuple[Model | None, str]:
    """A copy of the model in float64; without one, the reason."""
    if not isinstance(model, torch.nn.Module):
        return model, ""
    program = program_of(model)
    try:
        if program is not None:
            return float64_module(program), ""
        twin = copy.deepcopy(model).double()
        for weight in (*twin.parameters(), *twin.buffers()):
            if weight.is_complex():  # `double` leaves them alone
                weight.data = weight.data.to(torch.complex128)
        return twin, ""
    except Exception as error:  # any model may refuse to be copied; then there is no twin
        return None, f"the model cannot be copied to float64: {one_line(error)}"


def run_exactly(twin: Model | None, spec: ModelSpec, inputs: Tensors) -> Outputs | None:
    """The outputs in float64, of the same input values; None where that does not run."""
    if twin is None:
        return None
    wide = {name: _wide(value) for name, value in inputs.items()}
    try:
        with _default_dtype(torch.float64):
            outputs = run(twin, spec, wide)
    except Failure:
        return None
    return outputs if len(outputs) == len(spec.outputs) else None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def flatten_outputs(returned: Any) -> list[tuple[str, Any]]:
    """Leaves of what the model returned with their paths: `['logits']`, `[0]`, or nothing."""
    pairs, _ = pytree.tree_flatten_with_path(returned)
    return [(pytree.keystr(path), leaf) for path, leaf in pairs if leaf is not None]


def _is_shuffled(paths: list[str], spec: ModelSpec) -> bool:
    """Whether the model's own names of its outputs are the declared ones in another order."""
    own = [path.removeprefix(".").removeprefix("['").removesuffix("']") for path in paths]
    declared = [item.name for item in spec.outputs]
    return own != declared and sorted(own) == sorted(declared)


def _neither_or_both_complex(leaves: list[torch.Tensor], spec: ModelSpec) -> str:
    """Where a complex output is declared real, or a real one complex; else empty."""
    for leaf, output in zip(leaves, spec.outputs, strict=True):
        if leaf.is_complex() != output.is_complex:
            dtype = str(leaf.dtype).removeprefix("torch.")
            return f"output '{output.name}' is {dtype}, declared {output.dtype}"
    return ""


def _call(model: Model, spec: ModelSpec, inputs: Tensors) -> Any:
    call = tensor_call(spec, inputs)
    with torch.no_grad():
        return model(*call.args, **call.kwargs)


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return type(leaf).__name__


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """So that tensors which a model makes inside `forward` are float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
