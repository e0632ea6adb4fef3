"""Weights that a file may read row by row."""

from __future__ import annotations

import torch

from exporter.checks.numerical.lookup_tables import MIN_ROWS, hash_table_parts
from exporter.jobs.reference import TableParts
from exporter.runtimes.values import Array
from exporter.worker.model.source_loader import Model

#: Maximum number of lengths, because each one adds two input sets.
_MOST = 16
_NAMES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
}


def digest_tables(model: Model) -> tuple[TableParts, ...]:
    """Return the digests of the weights; a tensor with two names counts once."""
    if not isinstance(model, torch.nn.Module):
        return ()
    tables = []
    for weight in {id(item): item for item in (*model.parameters(), *model.buffers())}.values():
        if weight.dtype in _NAMES and weight.ndim == 2 and len(weight) >= MIN_ROWS:
            # Bytes, because numpy lacks bfloat16.
            rows: Array = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
            name, shape = _NAMES[weight.dtype], tuple(weight.shape)
            tables.append(TableParts(dtype=name, shape=shape, parts=hash_table_parts(rows)))
    return tuple(tables)


def list_table_lengths(model: Model) -> tuple[int, ...]:
    """Return the lengths of tables that an axis may exceed, rising.

    Tables are embeddings, buffers and the weights of the model's own layers. The weights of
    torch's layers except embeddings are multiplied, so a model does not look up their rows.
    """
    if not isinstance(model, torch.nn.Module):
        return ()
    lengths: set[int] = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            lengths.add(module.num_embeddings)
            continue
        tensors = list(module.buffers(recurse=False))
        if not type(module).__module__.startswith("torch.nn."):
            tensors += module.parameters(recurse=False)
        lengths |= {size for tensor in tensors if tensor.ndim >= 2 for size in tensor.shape}
    return tuple(sorted(size for size in lengths if size >= MIN_ROWS)[:_MOST])
