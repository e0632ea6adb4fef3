"""The weights of a model that a file may read row by row.

In: a model. Out: `TableParts`, one for each floating parameter and buffer of two dimensions.
"""

from __future__ import annotations

import torch

from exporter.checks.tables import LEAST_ROWS, Array, parts_of
from exporter.job import TableParts
from exporter.worker.source import Model

_NAMES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
}


def tables_of(model: Model) -> tuple[TableParts, ...]:
    """Digests of the weights; a tensor that has two names counts once."""
    if not isinstance(model, torch.nn.Module):
        return ()
    weights = {id(weight): weight for weight in (*model.parameters(), *model.buffers())}
    return tuple(
        TableParts(
            dtype=_NAMES[weight.dtype], shape=tuple(weight.shape), parts=parts_of(_bytes(weight))
        )
        for weight in weights.values()
        if weight.dtype in _NAMES and weight.ndim == 2 and len(weight) >= LEAST_ROWS
    )


def _bytes(weight: torch.Tensor) -> Array:
    """`[rows, bytes]`: numpy knows no bfloat16."""
    found: Array = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
    return found
