"""What PyTorch itself says on every input set, and how exact its own float32 is.

In: the model and its contract. Out: test data sets beside the file, and a `Reference`.

The same model runs three ways: twice as declared (does it differ from itself?), with each input
given other values (do the outputs move at all?), and in float64 (how much of the difference is
float32's own?): on a few samples at first, see `exact.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from exporter.checks.determinism import KEEPS_STATE
from exporter.checks.samples import sample_digest, write_sample
from exporter.job import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.worker import rounding
from exporter.worker.arrays import to_numpy
from exporter.worker.call import Tensors
from exporter.worker.eager import State, float64_twin, run, run_declared, run_exactly
from exporter.worker.exact import first_measured
from exporter.worker.failure import Failure
from exporter.worker.inputs import draw
from exporter.worker.made_calls import measured
from exporter.worker.returned import Outputs, to_value
from exporter.worker.sizes import InputSet, input_sets
from exporter.worker.source import Model
from exporter.worker.tables import tables_of


@dataclass(frozen=True, slots=True)
class _Run:
    """One input set with what PyTorch put out; no outputs where PyTorch failed on it."""

    chosen: InputSet
    inputs: Tensors
    outputs: Outputs | None
    exact: Outputs | None = None
    is_measured: bool = False
    """Whether it was run in float64, be it in vain."""
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
    outputs = run_declared(model, spec, inputs)
    unstable = _instability(model, spec, inputs, outputs, state)
    runs = [_Run(declared, inputs, outputs)]
    for wanted in others:
        given = draw(spec, wanted, root)
        chosen = replace(wanted, sizes=measured(spec, wanted, given))
        attempt = _attempt(model, spec, chosen, given)
        state.restore()
        if _says_something(attempt, inputs):
            runs.append(attempt)
    runs, no_twin = _measured(model, spec, runs)
    for index, done in enumerate(runs):
        _write(folder.sample(index), done, [item.name for item in spec.inputs])
    noise, why_not = rounding.noise(
        [(r.outputs, r.exact) for r in runs if r.outputs is not None and r.is_measured]
    )
    moved = [r.outputs for r in runs if r.chosen.kind == "values" and r.outputs is not None]
    elsewhere = [
        r.outputs for r in runs if r.chosen.kind in ("axis", "case") and r.outputs is not None
    ]
    return Reference(
        samples=tuple(
            _sample(index, done, folder.sample(index)) for index, done in enumerate(runs)
        ),
        noise=noise,
        float64=no_twin or why_not,
        unstable=unstable,
        spread=rounding.spread(outputs, moved, elsewhere),
        tables=tables_of(model),
    )


def _instability(
    model: Model, spec: ModelSpec, inputs: Tensors, outputs: Outputs, state: State
) -> str:
    """How a second call differs from the first, which just was; empty where it does not.

    A file has no second call: where what a call leaves in the buffers changes the next answer, the
    file can be right about the first one at most. BatchNorm's running figures change none.
    """
    second = rounding.difference(spec, outputs, run(model, spec, inputs))
    state.restore()
    if not second:
        return ""
    fresh = rounding.difference(spec, outputs, run(model, spec, inputs))
    state.restore()
    return second if fresh else f"{KEEPS_STATE}: {second}"


def _measured(model: Model, spec: ModelSpec, runs: list[_Run]) -> tuple[list[_Run], str]:
    """The runs, some of them in float64 too; and why the model has no twin in it."""
    twin, no_twin = float64_twin(model)
    at = [(place, run.outputs) for place, run in enumerate(runs) if run.outputs is not None]
    chosen = first_measured([runs[place].inputs for place, _ in at], [outputs for _, outputs in at])
    runs = list(runs)
    for place in (at[index][0] for index in chosen):
        exact = run_exactly(twin, spec, runs[place].inputs)
        runs[place] = replace(runs[place], exact=exact, is_measured=True)
    return runs, no_twin


def _attempt(model: Model, spec: ModelSpec, chosen: InputSet, inputs: Tensors) -> _Run:
    """PyTorch on one more input set; that it fails there is a finding, not the end."""
    try:
        outputs = run(model, spec, inputs)
    except Failure as failure:
        return _Run(chosen, inputs, None, error=failure.message)
    return _Run(chosen, inputs, outputs)


def _says_something(attempt: _Run, declared: Tensors) -> bool:
    """Whether a set belongs to what is promised.

    Values that we chose are dropped where the model refuses them (an index out of range), and
    where there are no others to choose. Sizes and cases stay, whatever PyTorch says: the manifest
    promises them.
    """
    if attempt.chosen.kind != "values":
        return True
    changed = any(not torch.equal(declared[name], attempt.inputs[name]) for name in declared)
    return changed and not attempt.error


def _sample(index: int, done: _Run, folder: Path) -> Sample:
    return Sample(
        index=index,
        name=done.chosen.name,
        kind=done.chosen.kind,
        axes=dict(done.chosen.sizes),
        error=done.error,
        scales=tuple(rounding.scale(output) for output in done.outputs or ()),
        exact=done.is_measured,
        sha256=sample_digest(folder),
    )


def _write(folder: Path, done: _Run, names: Sequence[str]) -> None:
    write_sample(
        folder,
        [to_numpy(done.inputs[name]) if name in done.inputs else None for name in names],
        [to_value(output) for output in done.outputs or ()],
        [to_value(output) for output in done.exact or ()],
    )
