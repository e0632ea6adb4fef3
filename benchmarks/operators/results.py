"""The results of calls, and the support of each operator that they show."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items

#: Arguments that a reason names.
_MOST_FEATURES = 3
#: With more alternatives, the arguments are probably not the reason.
_MOST_ALTERNATIVES = 2
_RUNTIME_CODE = re.compile(r"\w+: \[ONNXRuntimeError\] : \d+ : ")


class CallResult(StrEnum):
    """The result of one exported call."""

    RIGHT = "right"
    """The file has PyTorch's outputs."""
    WRONG = "wrong"
    """The file has other outputs, dtypes or shapes."""
    REFUSED = "refused"
    """The exporter raises."""
    INVALID = "invalid"
    """The runtime rejects the file, or fails in it."""
    NO_KERNEL = "no kernel"
    """The runtime lacks an operator of the file."""
    CRASH = "crash"
    """The process ended, or did not finish in time."""


class CallOutcome(FrozenModel):
    """The result of one call by one exporter at one opset."""

    result: CallResult
    message: str = ""


class MeasuredCall(FrozenModel):
    """One call of an operator."""

    operator: str
    """`aten::add`."""
    text: str
    """`add(float32[5, 5], float32[5], alpha=2)`."""
    features: Items[str]
    """The properties in which calls differ: `alpha=2`, `input of rank 0`, `without dim`."""
    outcomes: dict[str, CallOutcome]
    """By column: `torchscript 18`."""


class TestedFunction(FrozenModel):
    """The calls of one OpInfo."""

    __test__ = False  # pytest collects classes with this prefix
    name: str
    """The name in torch's tests: `nn.functional.conv2d`, `std.unbiased`."""
    calls: Items[MeasuredCall] = ()
    random: int = 0
    """Samples with other outputs in a second run, so that nothing can be compared."""
    other: int = 0
    """Samples without a tensor as a result, or with calls of several operators."""
    problem: str = ""
    """The reason if there are no samples."""


class CallSupport(StrEnum):
    """The support of an operator by one exporter at one opset."""

    FULL = "full"
    """All calls are right."""
    PARTIAL = "partial"
    """Some calls are right; the others are refused, or their file is rejected."""
    NONE = "none"
    """No call is right."""
    WRONG = "wrong"
    """A file has other outputs than PyTorch."""
    NO_KERNEL = "no kernel"
    """No call is right, because ONNX Runtime lacks an operator of each file."""


class ColumnSupport(FrozenModel):
    """The calls of one operator by one exporter at one opset."""

    support: CallSupport
    right: int
    """The number of right calls."""
    reason: str = ""
    """Arguments that all failed calls have, and no right call: `alpha=2`; "" if there are none."""
    call: str = ""
    """The first failed call."""
    message: str = ""
    """Its message."""


class MeasuredOperator(FrozenModel):
    """One operator."""

    operator: str
    """`aten::add`."""
    calls: int
    columns: dict[str, ColumnSupport]
    """By column: `torchscript 18`."""


class OperatorMeasurement(FrozenModel):
    """All measured operators."""

    format: Literal[1] = 1
    tools: dict[str, str]
    """The versions of torch, onnx, onnxscript and onnxruntime."""
    columns: Items[str]
    functions: int
    """The number of functions with samples in torch's tests."""
    random: int
    """Samples that were not compared, because a second run has other outputs."""
    other: int
    """Samples without a tensor as a result, or with calls of several operators."""
    problems: Items[str] = ()
    """Functions without samples, with the reason."""
    operators: Items[MeasuredOperator]
    """Sorted by operator."""

    def count(self, column: str) -> Mapping[CallSupport, int]:
        """Return the number of operators with each support in a column."""
        return Counter(item.columns[column].support for item in self.operators)

    def to_lines(self) -> str:
        """Return JSON with one line for each operator, so that differences are readable."""
        head = self.model_copy(update={"operators": ()}).model_dump_json()
        lines = ",\n".join(item.model_dump_json(exclude_defaults=True) for item in self.operators)
        return f"{head.removesuffix(']}')}\n{lines}\n]}}\n"


def summarize_calls(
    functions: Sequence[TestedFunction], columns: Sequence[str], tools: Mapping[str, str]
) -> OperatorMeasurement:
    """Return the support of each operator with a call."""
    calls: dict[str, list[MeasuredCall]] = defaultdict(list)
    for function in functions:
        for call in function.calls:
            calls[call.operator].append(call)
    return OperatorMeasurement(
        tools=dict(tools),
        columns=tuple(columns),
        functions=len(functions),
        random=sum(function.random for function in functions),
        other=sum(function.other for function in functions),
        problems=tuple(f"{each.name}: {each.problem}" for each in functions if each.problem),
        operators=tuple(
            MeasuredOperator(
                operator=operator,
                calls=len(calls[operator]),
                columns={name: _summarize_column(calls[operator], name) for name in columns},
            )
            for operator in sorted(calls)
        ),
    )


def _summarize_column(calls: Sequence[MeasuredCall], column: str) -> ColumnSupport:
    results = [call.outcomes[column].result for call in calls]
    right = [call for call in calls if call.outcomes[column].result is CallResult.RIGHT]
    wrong = [call for call in calls if call.outcomes[column].result is CallResult.WRONG]
    failed = wrong or [call for call in calls if call not in right]
    if not failed:
        return ColumnSupport(support=CallSupport.FULL, right=len(right))
    if wrong:
        support = CallSupport.WRONG
    elif right:
        support = CallSupport.PARTIAL
    elif set(results) == {CallResult.NO_KERNEL}:
        support = CallSupport.NO_KERNEL
    else:
        support = CallSupport.NONE
    outcome = failed[0].outcomes[column]
    prefix = "" if outcome.result in (CallResult.WRONG, CallResult.REFUSED) else "ONNX Runtime: "
    if outcome.result is CallResult.CRASH:
        prefix = "the process ended: "
    return ColumnSupport(
        support=support,
        right=len(right),
        reason=find_reason(failed, right),
        call=failed[0].text,
        message=prefix + _RUNTIME_CODE.sub("", outcome.message),
    )


def find_reason(failed: Sequence[MeasuredCall], right: Sequence[MeasuredCall]) -> str:
    """Return the arguments in which all failed calls differ from all right ones, or "".

    If no argument is common to the failed calls, the reason lists alternatives: `a=1 or b=2`.
    """
    if not right:
        return ""
    known = {feature for call in right for feature in call.features}
    special = [[each for each in call.features if each not in known] for call in failed]
    common = [each for each in special[0] if all(each in others for others in special)]
    if common:
        return ", ".join(_prefer_values(common)[:_MOST_FEATURES])
    if not all(special):
        return ""
    alternatives = dict.fromkeys(_prefer_values(each)[0] for each in special)
    return " or ".join(alternatives) if len(alternatives) <= _MOST_ALTERNATIVES else ""


def _prefer_values(features: Iterable[str]) -> list[str]:
    """Return values of arguments first, then ranks and dtypes, then missing arguments."""
    return sorted(features, key=lambda each: (each.startswith("without "), "=" not in each))
