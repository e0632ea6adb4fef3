"""The measured calls on the page of the operators."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.tools.operator_calls.support_table import (
    CallSupport,
    ColumnSupport,
    MeasuredOperator,
    OperatorMeasurement,
)

_NAMES = {"torchscript": "TorchScript", "dynamo": "dynamo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One operator, or several with the same support in all columns."""

    operator: str
    cells: tuple[str, ...]
    """One for each column: `full`, `2 of 4, not dim=None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCallRow:
    """A failed call, with the columns in which it fails."""

    operator: str
    columns: str
    call: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredView:
    """The values of the section."""

    operators: int
    unmeasured: int
    """ATen operators without a call."""
    calls: int
    random: int
    other: int
    columns: tuple[str, ...]
    counts: tuple[tuple[str, tuple[int, ...]], ...]
    """For each support, the number of operators in each column."""
    full: tuple[str, ...]
    """Operators with full support in all columns."""
    rows: tuple[MeasuredRow, ...]
    """All others."""
    failures: tuple[FailedCallRow, ...]
    problems: tuple[str, ...]
    tools: tuple[tuple[str, str], ...]


def view_measurement(measurement: OperatorMeasurement, known: int) -> MeasuredView:
    """Return the values of the section; `known` is the number of all ATen operators."""
    columns = measurement.columns
    counts = {column: measurement.count(column) for column in columns}
    partly = [item for item in measurement.operators if not _is_full(item)]
    return MeasuredView(
        operators=len(measurement.operators),
        unmeasured=known - len(measurement.operators),
        calls=sum(item.calls for item in measurement.operators),
        random=measurement.random,
        other=measurement.other,
        columns=tuple(_format_column(column) for column in columns),
        counts=tuple(
            (str(support), tuple(counts[column].get(support, 0) for column in columns))
            for support in CallSupport
        ),
        full=tuple(_short(item) for item in measurement.operators if _is_full(item)),
        rows=tuple(
            MeasuredRow(
                operator=_short(item),
                cells=tuple(_format_cell(item.columns[column], item.calls) for column in columns),
            )
            for item in partly
        ),
        failures=tuple(row for item in partly for row in _list_failures(item, columns)),
        problems=measurement.problems,
        tools=tuple(sorted(measurement.tools.items())),
    )


def _is_full(item: MeasuredOperator) -> bool:
    return all(result.support is CallSupport.FULL for result in item.columns.values())


def _short(item: MeasuredOperator) -> str:
    return item.operator.removeprefix("aten::")


def _format_column(column: str) -> str:
    exporter, _, opset = column.partition(" ")
    return f"{_NAMES.get(exporter, exporter)} {opset}"


def _format_cell(result: ColumnSupport, calls: int) -> str:
    if result.support in (CallSupport.FULL, CallSupport.NONE, CallSupport.NO_KERNEL):
        return str(result.support)
    word = "wrong" if result.support is CallSupport.WRONG else "partial"
    reason = f": {result.reason}" if result.reason else ""
    return f"{word}, {result.right} of {calls} right{reason}"


def _list_failures(item: MeasuredOperator, columns: tuple[str, ...]) -> list[FailedCallRow]:
    """Return the failed calls, with equal ones of several columns in one row."""
    groups: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        result = item.columns[column]
        if result.support is not CallSupport.FULL:
            # The messages of two opsets differ in the number of the opset only.
            opset = column.rpartition(" ")[2]
            message = result.message.replace(f"opset version {opset}", "this opset version")
            groups.setdefault((result.call, message), []).append(_format_column(column))
    return [
        FailedCallRow(operator=_short(item), columns=", ".join(names), call=call, message=message)
        for (call, message), names in groups.items()
    ]
