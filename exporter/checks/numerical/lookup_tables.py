"""`tables`: of a table that inputs read row by row, every row is PyTorch's, read or not.

An embedding has tens of thousands of rows, of which the samples read a few: no comparison of
outputs says anything of the others. So the table itself is compared, part by part, with PyTorch's.

Only a table that is a copy of a weight is judged: one of which at least one part is the weight's,
to the bit. A table that an exporter computed anew shares no part with any weight.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from exporter.checks.files.graph_walk import domain_of
from exporter.checks.files.read import Unreadable, read_model
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session

Array = np.ndarray[Any, Any]

#: Tables of fewer rows have no parts to tell a damaged copy from another table by.
LEAST_ROWS = 8
_PARTS = 64


@dataclass(frozen=True, slots=True)
class _Judged:
    """A table of the file beside the weight that it is a copy of."""

    name: str
    rows: int
    own: tuple[str, ...]
    weight: tuple[str, ...]


class Tables:
    """The file's tables, read from the file; see `RuntimeCheck`."""

    name = "tables"

    def applies(self, subject: CheckContext) -> bool:
        """Where the file looks rows up in a copy of a weight."""
        return any(True for _ in _judged(subject))  # the first will do: each is read whole

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Every part of every such table is PyTorch's."""
        found = list(_judged(subject))
        problems = [problem for table in found for problem in _problems(table)]
        return CheckResult(
            check=self.name,
            status=Status.FAIL if problems else Status.PASS,
            message="; ".join(problems),
            metrics={"tables": len(found)},
        )


def parts_of(array: Array) -> tuple[str, ...]:
    """A digest of each part of a table; empty for a part of nothing but zeros.

    Args:
        array: `[rows, columns]`; cut into up to 64 parts of nearly as many rows each.
    """
    data = np.ascontiguousarray(array).view(np.uint8)
    pieces = np.array_split(data, min(_PARTS, len(data)))
    return tuple(
        hashlib.sha256(piece.tobytes()).hexdigest()[:16] if piece.any() else "" for piece in pieces
    )


def _judged(subject: CheckContext) -> Iterator[_Judged]:
    try:
        yield from _copies(subject, read_model(subject.path))
    except (Unreadable, OSError, ValueError, onnx.checker.ValidationError):
        return  # `wellformed` says so


def _copies(subject: CheckContext, model: ModelProto) -> Iterator[_Judged]:
    for tensor in _looked_up(model):
        dtype, shape = TensorProto.DataType.Name(tensor.data_type), tuple(tensor.dims)
        alike = [t for t in subject.reference.tables if (t.dtype, t.shape) == (dtype, shape)]
        if not alike:
            continue
        own = parts_of(numpy_helper.to_array(tensor, base_dir=str(subject.path.parent)))
        # Of several weights of one shape, the one that it is most alike.
        closest = max(alike, key=lambda table: _shared(own, table.parts))
        if _shared(own, closest.parts):
            yield _Judged(tensor.name, shape[0], own, closest.parts)


def _looked_up(model: ModelProto) -> Iterator[TensorProto]:
    """Stored tensors of which a node takes rows by an index that is not stored itself."""
    graph = model.graph
    fixed = {tensor.name for tensor in graph.initializer}
    fixed |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    wanted = {
        node.input[0]
        for node in graph.node
        if node.op_type == "Gather" and not domain_of(node.domain) and node.input[1] not in fixed
    }
    for tensor in graph.initializer:
        if tensor.name in wanted and len(tensor.dims) == 2 and tensor.dims[0] >= LEAST_ROWS:
            yield tensor


def _shared(own: tuple[str, ...], weight: tuple[str, ...]) -> int:
    return sum(bool(one) and one == other for one, other in zip(own, weight, strict=True))


def _problems(table: _Judged) -> Iterator[str]:
    size = -(-table.rows // len(table.own))
    pairs = zip(table.own, table.weight, strict=True)
    wrong = [index for index, (one, other) in enumerate(pairs) if one != other]
    if wrong:
        yield (
            f"{len(wrong)} of {len(table.own)} parts of the table '{table.name}' are not "
            f"PyTorch's, the first near row {min(wrong[0] * size, table.rows - 1)} of {table.rows}"
        )
