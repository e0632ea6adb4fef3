"""The positions of an output that `masked_by` selects for the comparison.

Models compute meaningless values at masked positions, such as the padding on the left side of a
decoder's input. Only the positions that the mask allows are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from exporter.manifest import Input, ModelSpec
from exporter.runtimes.values import Array


def find_compared_positions(
    spec: ModelSpec, index: int, inputs: Mapping[str, Array], shape: Sequence[int]
) -> Array | None:
    """Return True for the elements of an output that are compared.

    Args:
        spec: The contract.
        index: Position of the output.
        inputs: The inputs of the sample by name.
        shape: The shape of the output's array.

    Returns:
        None if all elements are compared, or if the mask has other sizes than the output.
    """
    output = spec.outputs[index]
    item = next((item for item in spec.inputs if item.name == output.masked_by), None)
    if item is None or item.name not in inputs or len(shape) < len(output.shape):
        return None
    dims = [dim for dim in item.shape if dim != 1]
    array = inputs[item.name]
    allowed = np.equal(array, find_allowed_value(item))
    # Other dimensions of the mask have the size 1.
    allowed = allowed.squeeze(tuple(i for i, dim in enumerate(item.shape) if dim == 1))
    allowed = allowed.transpose([dims.index(dim) for dim in output.shape if dim in dims])
    sizes = [size if dim in dims else 1 for size, dim in zip(shape, output.shape, strict=False)] + [
        1
    ] * (len(shape) - len(output.shape))
    if allowed.size != math.prod(sizes):
        return None
    return np.broadcast_to(allowed.reshape(sizes), tuple(shape))


def find_allowed_value(mask: Input) -> int:
    """Return the value of a mask at the positions that are compared."""
    return 0 if mask.fill.kind == "padding" else 1
