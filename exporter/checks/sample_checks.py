"""The comparison with PyTorch: the outputs of all samples, and the copies of its tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckedFile, RuntimeCheck
from exporter.jobs import Sample
from exporter.manifest import Axis
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session
from exporter.runtimes.graph_walk import normalize_domain
from exporter.runtimes.session import Array

#: Check -> kind of its samples.
SAMPLE_KINDS: Mapping[str, str] = {
    "parity": "declared",
    "axes": "axis",
    "cases": "case",
    "values": "values",
}


def select_samples(check: str, checked: CheckedFile) -> list[Sample]:
    """Return the samples that the check compares."""
    kind = SAMPLE_KINDS[check]
    # The limits of a short proof come from all samples, as in the full one.
    reference = checked.reference.shorten() if checked.is_short else checked.reference
    return [sample for sample in reference.samples if sample.kind == kind]


def _report_missing(check: str, names: Sequence[str]) -> CheckResult:
    message = f"PyTorch's outputs are missing for {', '.join(names)}: nothing was compared"
    return CheckResult(check=check, status=Status.ERROR, message=message)


@partial(RuntimeCheck, "parity")
def check_parity(checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
    """Compare the outputs for the declared inputs with PyTorch's."""
    samples = select_samples("parity", checked)
    if not samples:
        return _report_missing("parity", ["the declared inputs"])
    return compare_samples("parity", samples, checked, session, device_name)


def _list_input_axes(checked: CheckedFile) -> list[Axis]:
    return [axis for axis in checked.spec.axes if axis.example is not None]


@partial(RuntimeCheck, "axes", applies=lambda checked: bool(_list_input_axes(checked)))
def check_axes(checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
    """Compare the outputs for other sizes; report the tested ranges, or axes without another."""
    samples = select_samples("axes", checked)
    result = compare_samples("axes", samples, checked, session, device_name)
    if result.status is not Status.PASS:
        return result
    untested, ranges = [], []
    for axis in _list_input_axes(checked):
        sizes = {sample.axes.get(axis.name, axis.example) for sample in samples} | {axis.example}
        tested = [size for size in sizes if size is not None]
        if len(tested) == 1 and axis.is_free:
            untested.append(f"'{axis.name}'")
        ranges.append(f"{axis.name} {min(tested)} to {max(tested)}")
    if not untested:
        ranges += _describe_combinations(checked, samples)
        metrics = {**result.metrics, "proved": ", ".join(ranges)}
        return result.model_copy(update={"metrics": metrics})
    function = checked.spec.inputs_from
    fix = "widen min and max, or declare a fixed size in the shape"
    if function is not None and not function.takes_sizes:
        fix = (
            f"{function.function} has no parameter for sizes; add one, which receives a dict of "
            "sizes by axis name, or declare a fixed size in the shape"
        )
    message = f"only the exported size was tested for {', '.join(untested)}: {fix}"
    return result.model_copy(update={"status": Status.INCONCLUSIVE, "message": message})


def _describe_combinations(checked: CheckedFile, samples: Sequence[Sample]) -> list[str]:
    """Return how many combinations of sizes ran, if those of several axes did not all run."""
    axes = [axis for axis in _list_input_axes(checked) if axis.is_free]
    rows = {tuple(sample.axes.get(axis.name, axis.example) for axis in axes) for sample in samples}
    rows.add(tuple(axis.example for axis in axes))
    count = 1
    for axis, column in zip(axes, zip(*rows, strict=True), strict=True):
        sizes = [size for size in column if size is not None]
        count *= max(sizes) // axis.multiple_of - (min(sizes) - 1) // axis.multiple_of
    return [f"{len(rows)} of {count:,} combinations"] if len(rows) < count and len(axes) > 1 else []


@partial(RuntimeCheck, "cases", applies=lambda checked: bool(checked.spec.cases))
def check_cases(checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
    """Compare the outputs for the other input sets of the manifest with PyTorch's."""
    samples = select_samples("cases", checked)
    names = {sample.name for sample in samples}
    if missing := [case.name for case in checked.spec.cases if case.name not in names]:
        return _report_missing("cases", missing)
    return compare_samples("cases", samples, checked, session, device_name)


@partial(RuntimeCheck, "values", applies=lambda checked: bool(select_samples("values", checked)))
def check_values(checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
    """Compare the outputs for other values of one input with PyTorch's.

    A trace stores the number of turns of a loop, the chosen branch and every number that was read
    from a tensor. Such a file passes with the declared values.
    """
    samples = select_samples("values", checked)
    return compare_samples("values", samples, checked, session, device_name)


NOTE_PREFIX = "fully masked rows: "


def describe_masked_samples(
    checked: CheckedFile, session: Session, device_name: str
) -> tuple[str, ...]:
    """Return a note for each input without allowed elements on which the file differs."""
    samples = [each for each in checked.reference.samples if each.kind == "masked"]
    names = [
        sample.changed_input
        for sample in samples
        if compare_samples("masked", [sample], checked, session, device_name).status is Status.FAIL
    ]
    return tuple(
        f"{NOTE_PREFIX}PyTorch and the file differ if '{name}' allows no element of a row, because "
        "a softmax over no element has no defined result; keep an allowed element in every row"
        for name in names
    )


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


# An embedding has tens of thousands of rows, and the samples read only a few of them. A
# comparison of outputs proves nothing about the other rows. So this check compares the table
# itself, part by part.
#
# Only a copy of a weight is compared: a table with at least one part that is equal to the
# weight's, bit by bit. A table that an exporter computed shares no part with a weight.
def _has_copies(checked: CheckedFile) -> bool:
    return any(True for _ in _read_copies(checked))  # stops early: each table is read whole


@partial(RuntimeCheck, "tables", applies=_has_copies)
def check_tables(checked: CheckedFile, *_: object) -> CheckResult:
    """Compare every part of every copied table with PyTorch's."""
    tables = list(_read_copies(checked))
    problems = []
    for table in tables:
        size = -(-table.rows // len(table.parts))
        pairs = zip(table.parts, table.weight_parts, strict=True)
        wrong = [index for index, (part, expected) in enumerate(pairs) if part != expected]
        if wrong:
            row = min(wrong[0] * size, table.rows - 1)
            problems.append(
                f"{len(wrong)} of {len(table.parts)} parts of the table '{table.name}' are not "
                f"PyTorch's, the first near row {row} of {table.rows}"
            )
    return CheckResult(
        check="tables",
        status=Status.FAIL if problems else Status.PASS,
        message="; ".join(problems),
        metrics={"tables": len(tables)},
    )


def hash_table_parts(array: Array) -> tuple[str, ...]:
    """Return a digest of each part of a table, "" for a part that has only zeros.

    `array`: `[rows, columns]`; divided into up to 64 parts of nearly equal size.
    """
    data = np.ascontiguousarray(array).view(np.uint8)
    pieces = np.array_split(data, min(_PARTS, len(data)))
    return tuple(
        hashlib.sha256(piece.tobytes()).hexdigest()[:16] if piece.any() else "" for piece in pieces
    )


def _read_copies(checked: CheckedFile) -> Iterator[_TableCopy]:
    """Yield each table with the weight that shares most parts with it.

    Yields nothing if the file cannot be read: the check `wellformed` reports that.
    """
    try:
        for tensor in _find_lookup_tables(read_model(checked.path)):
            dtype, shape = TensorProto.DataType.Name(tensor.data_type), tuple(tensor.dims)
            weights = [
                table
                for table in checked.reference.tables
                if (table.dtype, table.shape) == (dtype, shape)
            ]
            if not weights:
                continue
            array = numpy_helper.to_array(tensor, base_dir=str(checked.path.parent))
            parts = hash_table_parts(array)
            shared = [
                sum(
                    bool(one) and one == other
                    for one, other in zip(parts, weight.parts, strict=True)
                )
                for weight in weights
            ]
            if any(shared):
                weight = weights[shared.index(max(shared))]
                yield _TableCopy(tensor.name, shape[0], parts, weight.parts)
    except (UnreadableModel, OSError, ValueError, onnx.checker.ValidationError):
        return


def _find_lookup_tables(proto: ModelProto) -> Iterator[TensorProto]:
    """Yield stored tensors from which a node selects rows by an index that is not stored."""
    graph = proto.graph
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
