"""The outputs without the values at masked positions, for the figures of a reference."""

from __future__ import annotations

import torch

from exporter.checks.comparison.masked_positions import find_compared_positions
from exporter.manifest import ModelSpec
from exporter.worker.inputs.arrays import to_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.reference.outputs import Outputs, Returned


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
