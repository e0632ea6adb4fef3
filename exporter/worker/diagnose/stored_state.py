"""The dependence of a model's outputs on its earlier calls.

A file keeps no state between calls, so no exporter can write a right file of such a model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from exporter.core.text import join_names
from exporter.worker.diagnose.replay import ExpectedSession, SampleReplay
from exporter.worker.export.attempts import ExportContext
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import Model, load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.outputs import to_value
from exporter.worker.torch_private import pytree

#: Weights that a message names.
_MAX_NAMES = 3


def describe_stored_state(context: ExportContext, replay: SampleReplay) -> str:
    """Return how PyTorch's outputs depend on earlier calls, or "" if they do not.

    The sample runs again in the model after all other calls, and in a new model before any call. A
    source that creates another model in each call shows nothing, so two new models are compared.
    """
    new, other = (_load_model(context) for _ in range(2))
    is_comparable = new is not other and new is not context.model
    is_comparable = is_comparable and not _list_changed_weights(new, other)
    runs = [("PyTorch again, after other calls", context.model)]
    if is_comparable:
        runs.append(("a new model in PyTorch", new))
    for name, model in runs:
        text = _compare(model, context, replay)
        if text:
            names = _list_changed_weights(context.model, other) if is_comparable else ()
            changed = join_names(names, _MAX_NAMES) or "the model"
            return f"{name}: {text}; a call changes {changed}"
    return ""


def _compare(model: Model, context: ExportContext, replay: SampleReplay) -> str:
    """Return the difference of a model's outputs from PyTorch's first ones, "" if there is none."""
    spec, data = context.spec, replay.data
    inputs = {
        item.name: from_numpy(data.inputs[item.name], is_complex=item.is_complex)
        for item in spec.inputs
        if item.name in data.inputs
    }
    state = BufferSnapshot(model)
    try:
        outputs = tuple(to_value(output) for output in run_model(model, spec, inputs))
    except Failure as failure:
        return f"fails: {failure.message}"
    finally:
        state.restore()
    names = [output.name for output in spec.outputs]
    result = replay.compare(ExpectedSession(names, replace(data, outputs=outputs)))
    return "" if result.is_right else result.text


def _load_model(context: ExportContext) -> Model:
    spec, root = context.spec, context.root
    return wrap_with_call_objects(load_model(spec, root), spec, root)


def _list_changed_weights(model: Model, new: Model) -> tuple[str, ...]:
    """Return the names of parameters and buffers with other values than in the new model."""
    if not isinstance(model, torch.nn.Module) or not isinstance(new, torch.nn.Module):
        return ()
    values = new.state_dict()
    return tuple(
        name
        for name, value in model.state_dict().items()
        if name in values and not _are_equal(value, values[name])
    )


def _are_equal(value: Any, other: Any) -> bool:
    """Return True if two values of a state are equal; quantized weights are tuples with a dtype."""
    leaves, others = pytree.tree_leaves(value), pytree.tree_leaves(other)
    return len(leaves) == len(others) and all(
        torch.equal(one, two)
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor)
        else one == two
        for one, two in zip(leaves, others, strict=True)
    )
