"""The check `tables`: every row of a lookup table is equal to PyTorch's.

An embedding has tens of thousands of rows, and the samples read only a few of them. A comparison of
outputs proves nothing about the other rows. So this check compares the table itself, part by part.

Only a copy of a weight is compared: a table with at least one part that is equal to the weight's,
bit by bit. A table that an exporter computed shares no part with a weight.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session
from exporter.runtimes.graph_walk import normalize_domain
from exporter.runtimes.session import Array

#: A table with fewer rows has too few parts to distinguish a damaged copy from another table.
MIN_ROWS = 8
_PARTS = 64


@dataclass(frozen=True, slots=True)
class _TableCopy:
    """A table of the file and the weight that it copies, as digests of parts."""

    name: str
    rows: int
    parts: tuple[str, ...]
    weight_parts: tuple[str, ...]


class LookupTableCheck:
    """The comparison of the file's tables with the weights; see `RuntimeCheck`."""

    name = "tables"

    def applies(self, context: CheckContext) -> bool:
        """Return True if the file looks rows up in a copy of a weight."""
        return any(True for _ in _read_copies(context))  # stops early: each table is read whole

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare every part of every such table with PyTorch's."""
        tables = list(_read_copies(context))
        problems = [problem for table in tables for problem in _find_wrong_parts(table)]
        return CheckResult(
            check=self.name,
            status=Status.FAIL if problems else Status.PASS,
            message="; ".join(problems),
            metrics={"tables": len(tables)},
        )


def hash_table_parts(array: Array) -> tuple[str, ...]:
    """Return a digest of each part of a table, "" for a part that has only zeros.

    Args:
        array: `[rows, columns]`; divided into up to 64 parts of nearly equal size.
    """
    data = np.ascontiguousarray(array).view(np.uint8)
    pieces = np.array_split(data, min(_PARTS, len(data)))
    return tuple(
        hashlib.sha256(piece.tobytes()).hexdigest()[:16] if piece.any() else "" for piece in pieces
    )


def _read_copies(context: CheckContext) -> Iterator[_TableCopy]:
    """Yield each table with the weight that shares most parts with it.

    Yields nothing if the file cannot be read: the check `wellformed` reports that.
    """
    try:
        for tensor in _find_lookup_tables(read_model(context.path)):
            dtype, shape = TensorProto.DataType.Name(tensor.data_type), tuple(tensor.dims)
            weights = [
                table
                for table in context.reference.tables
                if (table.dtype, table.shape) == (dtype, shape)
            ]
            if not weights:
                continue
            array = numpy_helper.to_array(tensor, base_dir=str(context.path.parent))
            parts = hash_table_parts(array)
            shared = [_count_shared(parts, weight.parts) for weight in weights]
            if any(shared):
                weight = weights[shared.index(max(shared))]
                yield _TableCopy(tensor.name, shape[0], parts, weight.parts)
    except (UnreadableModel, OSError, ValueError, onnx.checker.ValidationError):
        return


def _find_lookup_tables(model: ModelProto) -> Iterator[TensorProto]:
    """Yield stored tensors from which a node selects rows by an index that is not stored."""
    graph = model.graph
    fixed = {tensor.name for tensor in graph.initializer}
    fixed |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    names = {
        node.input[0]
        for node in graph.node
        if node.op_type == "Gather"
        and not normalize_domain(node.domain)
        and node.input[1] not in fixed
    }
    for tensor in graph.initializer:
        if tensor.name in names and len(tensor.dims) == 2 and tensor.dims[0] >= MIN_ROWS:
            yield tensor


def _count_shared(parts: tuple[str, ...], others: tuple[str, ...]) -> int:
    return sum(bool(one) and one == other for one, other in zip(parts, others, strict=True))


def _find_wrong_parts(table: _TableCopy) -> Iterator[str]:
    size = -(-table.rows // len(table.parts))
    pairs = zip(table.parts, table.weight_parts, strict=True)
    wrong = [index for index, (part, expected) in enumerate(pairs) if part != expected]
    if wrong:
        row = min(wrong[0] * size, table.rows - 1)
        yield (
            f"{len(wrong)} of {len(table.parts)} parts of the table '{table.name}' are not "
            f"PyTorch's, the first near row {row} of {table.rows}"
        )
