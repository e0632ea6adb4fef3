"""A fresh copy of a model that is called with other inputs first, and then as declared.

A file keeps nothing between calls. A model whose weights change in a call, or whose outputs depend
on its earlier inputs, has no right file. Buffers may change if no output depends on them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from exporter.checks.runtime_checks import HISTORY_PREFIX, WEIGHTS_PREFIX
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.second_build import digest_weights
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.reference.eager_run import run_declared_inputs, run_model
from exporter.worker.reference.noise import describe_difference
from exporter.worker.reference.outputs import Outputs, Returned
from exporter.worker.reference.python_state import PythonState

#: Names in one message.
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversedCalls:
    """The result of the declared call after other calls."""

    outputs: Outputs = ()
    error: str = ""
    """The error of the declared call."""
    changed_weights: tuple[str, ...] = ()
    changed_values: tuple[str, ...] = ()

    def describe_change(self, spec: ModelSpec, outputs: Outputs) -> str:
        """Return how earlier calls change weights or outputs, or "" if they do not.

        Args:
            spec: The contract.
            outputs: The outputs of a first call with the declared inputs.
        """
        if self.error:
            difference = f"the declared inputs fail after other inputs: {self.error}"
        else:
            difference = describe_difference(spec, outputs, self.outputs)
        suffix = f": {difference}" if difference else ""
        if self.changed_weights:
            return f"{WEIGHTS_PREFIX} {join_names(self.changed_weights, _MAX_NAMES)}{suffix}"
        if not difference:
            return ""
        names = join_names(self.changed_values, _MAX_NAMES)
        return f"{HISTORY_PREFIX}{f', which change {names}' if names else ''}{suffix}"


def call_in_reverse(
    model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]
) -> ReversedCalls | None:
    """Call a copy of the model with other inputs, then with the declared ones.

    Returns:
        None if this process cannot be forked, or if the fork ended.
    """
    if not can_fork():
        return None
    result = compute_in_fork(lambda: _call_model(model, spec, root, sets))
    if result is None:
        return None
    outputs, error, weights, values = result
    return ReversedCalls(
        outputs=tuple(outputs),
        error=error,
        changed_weights=tuple(weights),
        changed_values=tuple(values),
    )


def _call_model(
    model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]
) -> tuple[list[Returned], str, list[str], list[str]]:
    weights, state = digest_weights(model), PythonState(model)
    declared, *others = sets
    inputs = draw_inputs(spec, declared, root)
    for resized in [chosen for chosen in others if chosen.kind == "axis"][-1:]:
        with contextlib.suppress(Failure):
            run_model(model, spec, draw_inputs(spec, resized, root))
    _call_with_other_values(model, spec, root, inputs, others)
    values = state.list_changes()
    outputs: Outputs = ()
    error = ""
    try:
        outputs = run_declared_inputs(model, spec, inputs)
    except Failure as failure:
        error = failure.message
    after = digest_weights(model)
    changed = [
        name for name in weights if "buffer" not in name and after.get(name) != weights[name]
    ]
    # A subclass of tensors could not be read from the fork.
    plain = [
        [item.as_subclass(torch.Tensor) for item in output]
        if isinstance(output, list)
        else output.as_subclass(torch.Tensor)
        for output in outputs
    ]
    return plain, error, changed, list(values)


def _call_with_other_values(
    model: Model, spec: ModelSpec, root: Path, declared: Tensors, others: Sequence[InputSet]
) -> None:
    """Call the model with other values of all inputs, or of one if it refuses all."""
    sets = [
        chosen
        for chosen in others
        if chosen.kind == "values"
        and chosen.factor == 1.0
        and not chosen.increment
        and not chosen.special
    ]
    calls = []
    for chosen in sets:
        with contextlib.suppress(Failure):
            calls.append((chosen.changed_input, draw_inputs(spec, chosen, root)))
    joint = dict(declared)
    joint.update({name: inputs[name] for name, inputs in calls if name in inputs})
    for inputs in (joint, *(inputs for _, inputs in calls)):
        with contextlib.suppress(Failure):
            run_model(model, spec, inputs)
            return
