"""The page of the operators: the support that their measured calls show, and the models' uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from benchmarks.operators.results import (
    CallSupport,
    ColumnSupport,
    MeasuredOperator,
    OperatorMeasurement,
)
from exporter.report.formats import escape_inline, format_code

_HEAD = """\
# Operators

Written by the session `operators`. {calls} calls of {operators} ATen operators, from the samples of
torch's own tests, were exported at two opsets by each exporter. Each file ran in ONNX Runtime and
was compared with PyTorch. Up to four calls of a function were selected, which differ in their
arguments. Not compared: {random} samples with random results, and {other} with several operators
or without a tensor as result.

- **full**: all calls are right. **partial**: the others are refused, or ONNX Runtime rejects their
  file. **none**: no call is right.
- **wrong**: a file has other values, dtypes or shapes than PyTorch, and nothing reported it.
- **no kernel**: ONNX Runtime lacks an operator of each file.
- After the colon: arguments that the failed calls have and the right ones have not.
"""


def make_page(measurement: OperatorMeasurement, uses: Mapping[str, Iterable[str]]) -> str:
    """Return the page as markdown.

    Args:
        measurement: The measured operators.
        uses: The models of the project by operator, `aten::add` or `aten.add.Tensor`.
    """
    columns = measurement.columns
    partly = [item for item in measurement.operators if not _is_full(item)]
    full = [item.operator for item in measurement.operators if _is_full(item)]
    counts = {column: measurement.count(column) for column in columns}
    models = _group_uses(uses, {item.operator for item in measurement.operators})
    lines = [
        _HEAD.format(
            calls=sum(item.calls for item in measurement.operators),
            operators=len(measurement.operators),
            random=measurement.random,
            other=measurement.other,
        ),
        *_table(
            ("support", *columns),
            [
                (support, *(str(counts[column].get(support, 0)) for column in columns))
                for support in CallSupport
            ],
        ),
        "",
        f"Full support in all columns: {', '.join(map(_code, full))}.",
        "",
        *_table(
            ("operator", *columns, "models"),
            [
                (
                    _code(item.operator),
                    *(_describe(item.columns[column], item.calls) for column in columns),
                    models.get(item.operator, ""),
                )
                for item in partly
            ],
        ),
        "",
        "## The first failed call of each operator",
        "",
        *_table(
            ("operator", "columns", "call", "message"),
            [row for item in partly for row in _list_failures(item, columns)],
        ),
        "",
        "## Operators of the models",
        "",
        "The operators that the last export traced or captured, with the models of this project.",
        "",
        *_table(("operator", "models"), [(_code(name), models[name]) for name in sorted(models)]),
        "",
        *(f"- {escape_inline(problem)}" for problem in measurement.problems),
        "",
        "Measured with "
        + ", ".join(f"{name} {escape_inline(text)}" for name, text in measurement.tools.items())
        + ".",
    ]
    return "\n".join(lines) + "\n"


def resolve_packet(name: str, packets: Iterable[str] = ()) -> str:
    """Return the operator of a row: `aten::add` for `aten.add.Tensor` and `aten::add_`."""
    if "::" not in name:
        parts = name.split(".")
        name = f"{parts[0]}::{'.'.join(parts[1:-1]) or parts[-1]}"
    plain = name.removesuffix("_")
    return name if name in packets or plain not in packets else plain


def _group_uses(uses: Mapping[str, Iterable[str]], packets: set[str]) -> dict[str, str]:
    """Return the links to the models of each operator."""
    models: dict[str, set[str]] = {}
    for name, users in uses.items():
        models.setdefault(resolve_packet(name, packets), set()).update(users)
    return {
        name: ", ".join(f"[{model}](models/{model}.md)" for model in sorted(users))
        for name, users in models.items()
    }


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def _is_full(item: MeasuredOperator) -> bool:
    return all(result.support is CallSupport.FULL for result in item.columns.values())


def _code(name: str) -> str:
    return str(format_code(name.removeprefix("aten::")))


def _describe(result: ColumnSupport, calls: int) -> str:
    if result.support in (CallSupport.FULL, CallSupport.NONE, CallSupport.NO_KERNEL):
        return str(result.support)
    reason = f": {result.reason}" if result.reason else ""
    return str(escape_inline(f"{result.support}, {result.right} of {calls} right{reason}"))


def _list_failures(item: MeasuredOperator, columns: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the failed calls, with equal ones of several columns in one row."""
    groups: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        result = item.columns[column]
        if result.support is not CallSupport.FULL:
            # The messages of two opsets differ in the number of the opset only.
            opset = column.rpartition(" ")[2]
            message = result.message.replace(f"opset version {opset}", "this opset version")
            groups.setdefault((result.call, message), []).append(column)
    for (call, message), names in groups.items():
        yield (
            _code(item.operator),
            ", ".join(names),
            str(format_code(call)) if call else "",
            str(escape_inline(message)),
        )
