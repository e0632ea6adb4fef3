"""The weights of a model that a file may read row by row.

In: a model. Out: `TableParts`, one for each floating parameter and buffer of two dimensions.
"""

from __future__ import annotations

import torch

from exporter.checks.numerical.lookup_tables import MIN_ROWS, Array, hash_table_parts
from exporter.jobs.reference import TableParts
from exporter.worker.model.source_loader import Model

#: Lengths that are tried.
_MOST = 16
_NAMES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
}


def digest_tables(model: Model) -> tuple[TableParts, ...]:
    """Digests of the weights; a tensor that has two names counts once."""
    if not isinstance(model, torch.nn.Module):
        return ()
    weights = {id(weight): weight for weight in (*model.parameters(), *model.buffers())}
    return tuple(
        TableParts(
            dtype=_NAMES[weight.dtype],
            shape=tuple(weight.shape),
            parts=hash_table_parts(_bytes(weight)),
        )
        for weight in weights.values()
        if weight.dtype in _NAMES and weight.ndim == 2 and len(weight) >= MIN_ROWS
    )


def list_table_lengths(model: Model) -> tuple[int, ...]:
    """How long tables are that a size may go beyond, rising: embeddings, and what a model made.

    The weights of torch's own layers, but for embeddings, are multiplied and not looked up.
    """
    if not isinstance(model, torch.nn.Module):
        return ()
    found: set[int] = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            found.add(module.num_embeddings)
            continue
        own = list(module.buffers(recurse=False))
        if not type(module).__module__.startswith("torch.nn."):
            own += module.parameters(recurse=False)
        found |= {size for tensor in own if tensor.ndim >= 2 for size in tensor.shape}
    return tuple(sorted(size for size in found if size >= MIN_ROWS)[:_MOST])


def _bytes(weight: torch.Tensor) -> Array:
    """`[rows, bytes]`: numpy knows no bfloat16."""
    found: Array = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
    return found
