"""Wrong values only at masked positions, which have no meaning.

A softmax over a row without any allowed element has no defined result: PyTorch returns 0, NaN or a
mixture, and a file returns another of these. Rows of padding depend on such values too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.manifest import Fill, Input, ModelSpec, Output
from exporter.runtimes import Session
from exporter.worker.diagnose.replay import SampleReplay

#: The fill by which `masked_by` selects the positions with this value.
_FILLS = {1: Fill(kind="mask", side="right"), 0: Fill(kind="padding", side="right")}


def explain_masked_rows(
    context: CheckContext, device: str, sample: Sample, session: Session
) -> str:
    """Return the evidence that a file is wrong only at masked positions.

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
