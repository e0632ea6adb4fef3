"""Causes outside of the exporter: values at masked positions, and state that earlier calls left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from exporter.checks.protocol import CheckContext
from exporter.core.text import join_names
from exporter.jobs import Sample
from exporter.manifest import Fill, Input, ModelSpec, Output
from exporter.runtimes import Session
from exporter.worker.diagnose.replay import ExpectedSession, SampleReplay
from exporter.worker.export.attempts import ExportContext
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import Model, load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.outputs import to_value
from exporter.worker.torch_private import pytree

#: The fill by which `masked_by` selects the positions with this value.
_FILLS = {1: Fill(kind="mask", side="right"), 0: Fill(kind="padding", side="right")}


def explain_masked_rows(
    context: CheckContext, device: str, sample: Sample, session: Session
) -> str:
    """Return the evidence that a file is wrong only at masked positions.

    A softmax over a row without any allowed element has no defined result: PyTorch returns 0, NaN
    or a mixture, and a file returns another of these. Rows of padding depend on such values too.

    Returns:
        "" if another position is wrong too, or if no input is a mask of an output.
    """
    inputs = context.read(sample).inputs
    for item in context.spec.inputs:
        array, value = inputs.get(item.name), item.fill.masked_value
        if array is None or value is None or not np.isin(array, (0, 1)).all():
            continue
        masked = array == value
        # Other ones and zeros, such as types of tokens, rarely have such a row.
        is_mask = (
            item.fill.kind in ("mask", "padding")
            or sample.name == f"padded {item.name}"
            or (array.ndim > 1 and masked.all(axis=-1).any())
        )
        if not is_mask or masked.all() or not masked.any():
            continue
        spec = _mask_outputs(context.spec, item, _FILLS[1 - value])
        if spec is not None:
            replay = SampleReplay(replace(context, spec=spec), device, sample)
            if replay.compare(session).is_right:
                return _format_evidence(item, 1 - value)
    return ""


def _format_evidence(item: Input, allowed: int) -> str:
    fix = f"declare masked_by = '{item.name}' for the output"
    if not allowed:
        fix = f'declare fill = {{ padding = "right" }} for the input and {fix}'
    return (
        f"right at all positions with {allowed} in '{item.name}', wrong only at masked positions: "
        f"PyTorch's values there have no meaning; {fix}, or keep an allowed element in every row"
    )


def _mask_outputs(spec: ModelSpec, item: Input, fill: Fill) -> ModelSpec | None:
    """Return the contract with a mask for every output that can have one, or None."""
    outputs = tuple(_mask_output(output, item) for output in spec.outputs)
    if outputs == spec.outputs:
        return None
    inputs = (
        each.model_copy(update={"fill": fill}) if each.name == item.name else each
        for each in spec.inputs
    )
    return spec.model_copy(update={"inputs": tuple(inputs), "outputs": outputs})


def _mask_output(output: Output, item: Input) -> Output:
    dims = list(_list_axes(item))
    is_free = output.kind == "tensor" and not output.masked_by
    fits = dims and all(dims.count(dim) == 1 == output.shape.count(dim) for dim in dims)
    return output.model_copy(update={"masked_by": item.name}) if is_free and fits else output


def _list_axes(item: Input) -> Iterator[int | str]:
    return (dim for dim in item.shape if dim != 1)


#: Weights that a message names.
_MAX_NAMES = 3


def describe_stored_state(context: ExportContext, replay: SampleReplay) -> str:
    """Return how PyTorch's outputs depend on earlier calls, or "" if they do not.

    A file keeps no state between calls, so no exporter can write a right file of such a model.
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
