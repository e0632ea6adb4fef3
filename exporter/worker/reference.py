"""What PyTorch itself says on every input set, and how exact its own float32 is.

In: the model and its contract. Out: test data sets beside the file, and a `Reference`.

The same model runs three ways: twice as declared (does it differ from itself?), on inputs of
another seed (do the outputs move at all?), and in float64 (how much of the difference is
float32's own?).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from exporter.checks.samples import write_sample
from exporter.job import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.record import Stage, Status
from exporter.worker.failure import Failure, one_line, stage_of
from exporter.worker.inputs import Tensors, draw, tensor_call
from exporter.worker.sizes import InputSet, input_sets
from exporter.worker.source import Model

Outputs = tuple[torch.Tensor, ...]

#: Above this share of the output's scale, float32 and float64 do not compute the same thing (an
#: argmax went the other way, a cast inside), and the difference is no measure of rounding.
_LARGEST_NOISE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}


@dataclass(frozen=True, slots=True)
class _Run:
    """One input set with what PyTorch put out; no outputs where PyTorch failed on it."""

    chosen: InputSet
    inputs: Tensors
    outputs: Outputs | None
    exact: Outputs | None
    error: str = ""


def compute_reference(model: Model, spec: ModelSpec, root: Path, folder: JobFolder) -> Reference:
    """Runs the model on every input set and writes each one's `test_data_set_<n>`.

    Raises:
        Failure: of stage `source`, where the model does not run on its declared inputs or returns
            other outputs than declared.
    """
    state = State(model)
    declared, *others = input_sets(spec)
    inputs = draw(spec, declared, root)
    outputs = _first_run(model, spec, inputs)
    state.restore()
    unstable = _difference(spec, outputs, _run(model, spec, inputs))
    state.restore()
    twin, no_twin = _float64_twin(model)
    runs = [
        _Run(declared, inputs, outputs, _exactly(twin, spec, inputs)),
        *(_attempt(model, twin, spec, chosen, root, state) for chosen in others),
    ]
    spread = _spread(model, spec, declared, root, outputs)
    state.restore()
    for index, run in enumerate(runs):
        _write(folder.sample(index), run)
    noise, why_not = _noise(runs, len(spec.outputs))
    return Reference(
        samples=tuple(_sample(index, run) for index, run in enumerate(runs)),
        noise=noise,
        float64=no_twin or why_not,
        unstable=unstable,
        spread=spread,
    )


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


def flatten_outputs(returned: Any) -> list[tuple[str, Any]]:
    """Leaves of what the model returned with their paths: `['logits']`, `[0]`, or nothing."""
    pairs, _ = pytree.tree_flatten_with_path(returned)
    return [(pytree.keystr(path), leaf) for path, leaf in pairs if leaf is not None]


def _first_run(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    with stage_of(Stage.SOURCE):
        returned = _call(model, spec, inputs)
    leaves = flatten_outputs(returned)
    described = ", ".join(f"{path or 'the result'}: {_kind(leaf)}" for path, leaf in leaves)
    names = ", ".join(item.name for item in spec.outputs)
    if any(not isinstance(leaf, torch.Tensor) for _, leaf in leaves):
        problem = "only tensors can be outputs of a graph"
    elif len(leaves) != len(spec.outputs):
        problem = f"declared are {len(spec.outputs)}"
    else:
        return tuple(leaf.detach() for _, leaf in leaves)
    raise Failure(
        Stage.SOURCE,
        f"the model returns {len(leaves)} outputs ({described}); {problem} ({names})",
        status=Status.FAIL,
    )


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return type(leaf).__name__


def _call(model: Model, spec: ModelSpec, inputs: Tensors) -> Any:
    call = tensor_call(spec, inputs)
    with torch.no_grad():
        return model(*call.args, **call.kwargs)


def _run(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    with stage_of(Stage.SOURCE):
        leaves = flatten_outputs(_call(model, spec, inputs))
        return tuple(leaf.detach() for _, leaf in leaves)


def _attempt(
    model: Model,
    twin: Model | None,
    spec: ModelSpec,
    chosen: InputSet,
    root: Path,
    state: State,
) -> _Run:
    """PyTorch on one more input set; that it fails there is a finding, not the end."""
    inputs = draw(spec, chosen, root)
    try:
        outputs = _run(model, spec, inputs)
    except Failure as failure:
        return _Run(chosen, inputs, None, None, failure.message)
    finally:
        state.restore()
    return _Run(chosen, inputs, outputs, _exactly(twin, spec, inputs))


def _float64_twin(model: Model) -> tuple[Model | None, str]:
    if not isinstance(model, torch.nn.Module):
        return model, ""
    try:
        return copy.deepcopy(model).double(), ""
    except Exception as error:  # any model may refuse to be copied; then there is no twin
        return None, f"the model cannot be copied to float64: {one_line(error)}"


def _exactly(twin: Model | None, spec: ModelSpec, inputs: Tensors) -> Outputs | None:
    """The outputs in float64, of the same input values; None where that does not run."""
    if twin is None:
        return None
    wide = {
        name: value.double() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    try:
        with _default_dtype(torch.float64):
            outputs = _run(twin, spec, wide)
    except Failure:
        return None
    return outputs if len(outputs) == len(spec.outputs) else None


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """So that tensors which a model makes inside `forward` are float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _difference(spec: ModelSpec, first: Outputs, second: Outputs) -> str:
    for item, one, other in zip(spec.outputs, first, second, strict=True):
        if one.shape != other.shape:
            return f"output '{item.name}' is {list(one.shape)} once and {list(other.shape)} then"
        if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)):
            apart = float((one.double() - other.double()).abs().nan_to_num().max())
            return f"output '{item.name}' differs by {apart:.1e} between two runs on one input"
    return ""


def _spread(
    model: Model, spec: ModelSpec, declared: InputSet, root: Path, outputs: Outputs
) -> tuple[float | None, ...]:
    """How far each float output moves, as a share of its scale, under inputs of another seed."""
    if not any(item.fill.is_random for item in spec.inputs):
        return tuple(None for _ in outputs)
    other = _run(model, spec, draw(spec, declared, root, seed=spec.seed + 1))
    return tuple(
        _apart(one, two) / (_scale(one) or 1.0)
        if one.is_floating_point() and one.shape == two.shape
        else None
        for one, two in zip(outputs, other, strict=True)
    )


def _noise(runs: Sequence[_Run], count: int) -> tuple[tuple[float | None, ...], str]:
    """Per output the largest float32 error as a share of scale, and why there is none."""
    compared = [run for run in runs if run.outputs is not None]
    if any(run.exact is None for run in compared):
        return (None,) * count, "the model does not run in float64"
    noise: list[float | None] = []
    reasons: list[str] = []
    for index in range(count):
        pairs = [(r.outputs[index], r.exact[index]) for r in compared if r.outputs and r.exact]
        if not pairs[0][0].is_floating_point():
            noise.append(None)
            continue
        value, reason = _noise_of(pairs)
        noise.append(value)
        reasons += [f"output {index}: {reason}"] if reason else []
    return tuple(noise), "; ".join(reasons)


def _noise_of(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float | None, str]:
    largest = 0.0
    for declared, exact in pairs:
        if exact.dtype != torch.float64 or declared.dtype == torch.float64:
            return None, "it is computed in its declared dtype whatever the inputs are"
        if declared.shape != exact.shape:
            return None, "it has another shape in float64"
        scale = _scale(exact)
        largest = max(largest, _apart(declared, exact) / scale if scale else 0.0)
        limit = _LARGEST_NOISE.get(declared.dtype, 1e-3)
    if not largest <= limit:
        return None, f"float64 differs by {largest:.1e} of the scale, which is no rounding"
    return largest, ""


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest finite difference; 0 for empty tensors."""
    difference = (one.double() - other.double()).abs()
    finite = difference[torch.isfinite(difference)]
    return float(finite.max()) if finite.numel() else 0.0


def _scale(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point():
        return 0.0
    finite = tensor.double().abs()
    finite = finite[torch.isfinite(finite)]
    return float(finite.max()) if finite.numel() else 0.0


def _sample(index: int, run: _Run) -> Sample:
    return Sample(
        index=index,
        name=run.chosen.name,
        kind=run.chosen.kind,
        axes=dict(run.chosen.sizes),
        error=run.error,
        scales=tuple(_scale(output) for output in run.outputs or ()),
    )


def _write(folder: Path, run: _Run) -> None:
    write_sample(
        folder,
        [to_numpy(tensor) for tensor in run.inputs.values()],
        [to_numpy(tensor) for tensor in run.outputs or ()],
        [to_numpy(tensor) for tensor in run.exact or ()],
    )


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same values and dtype in numpy; bfloat16 by way of ml_dtypes."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    found: np.ndarray[Any, Any] = tensor.numpy()
    return found
