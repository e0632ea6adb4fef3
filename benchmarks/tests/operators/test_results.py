"""The support of an operator follows from its calls, and the reason names their arguments."""

from __future__ import annotations

from benchmarks.operators.results import (
    CallOutcome,
    CallResult,
    CallSupport,
    ColumnSupport,
    MeasuredCall,
    OperatorMeasurement,
    TestedFunction,
    summarize_calls,
)

COLUMN = "torchscript 18"


def call(operator: str, result: CallResult, *features: str, message: str = "") -> MeasuredCall:
    return MeasuredCall(
        operator=f"aten::{operator}",
        text=f"{operator}({', '.join(features)})",
        features=features,
        outcomes={COLUMN: CallOutcome(result=result, message=message)},
    )


def summarize(*calls: MeasuredCall) -> OperatorMeasurement:
    function = TestedFunction(name="f", calls=calls, random=2, other=3)
    return summarize_calls([function], [COLUMN], {"torch": "2"})


def column(*calls: MeasuredCall) -> ColumnSupport:
    (item,) = summarize(*calls).operators
    return item.columns[COLUMN]


RIGHT, WRONG, REFUSED = CallResult.RIGHT, CallResult.WRONG, CallResult.REFUSED


def test_all_right_calls_are_full_support() -> None:
    result = column(call("add", RIGHT, "alpha=1"), call("add", RIGHT, "alpha=2"))
    assert result == ColumnSupport(support=CallSupport.FULL, right=2)


def test_a_refused_call_is_partial_support_for_its_arguments() -> None:
    result = column(
        call("add", RIGHT, "self of rank 2", "without alpha"),
        call("add", REFUSED, "self of rank 2", "alpha=2", message="no alpha"),
        call("add", REFUSED, "self of rank 3", "alpha=2"),
    )
    assert (result.support, result.right, result.reason) == (CallSupport.PARTIAL, 1, "alpha=2")
    assert (result.call, result.message) == ("add(self of rank 2, alpha=2)", "no alpha")


def test_two_causes_are_alternatives_and_more_are_none() -> None:
    right = call("f", RIGHT, "a=0")
    two = column(right, call("f", REFUSED, "a=1"), call("f", REFUSED, "b=1"))
    assert two.reason == "a=1 or b=1"
    more = column(right, *(call("f", REFUSED, f"a={number}") for number in (1, 2, 3)))
    assert more.reason == ""


def test_a_failed_call_with_the_arguments_of_a_right_one_has_no_reason() -> None:
    result = column(call("f", RIGHT, "a=1"), call("f", REFUSED, "a=1"))
    assert (result.support, result.reason) == (CallSupport.PARTIAL, "")


def test_one_wrong_call_outweighs_right_and_refused_ones() -> None:
    result = column(
        call("std", RIGHT, "correction=1"),
        call("std", REFUSED, "dim=9"),
        call("std", WRONG, "correction=1.3", message="1, PyTorch has 2"),
    )
    assert (result.support, result.reason) == (CallSupport.WRONG, "correction=1.3")
    assert result.message == "1, PyTorch has 2"


def test_a_missing_kernel_is_not_the_exporters_failure() -> None:
    code = "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no Foo(26)"
    missing = call("foo", CallResult.NO_KERNEL, message=code)
    result = column(missing, missing)
    assert result.support is CallSupport.NO_KERNEL
    assert result.message == "ONNX Runtime: NOT_IMPLEMENTED : no Foo(26)"
    assert column(missing, call("foo", REFUSED)).support is CallSupport.NONE


def test_a_crash_costs_its_own_call_only() -> None:
    crash = call("foo", CallResult.CRASH, "a=1", message="timeout: not finished")
    result = column(call("foo", RIGHT, "a=0"), crash)
    assert (result.support, result.reason) == (CallSupport.PARTIAL, "a=1")
    assert result.message == "the process ended: timeout: not finished"


def test_the_file_has_one_line_for_each_operator() -> None:
    measurement = summarize(call("b", RIGHT), call("a", REFUSED), call("b", WRONG))
    text = measurement.to_lines()
    assert OperatorMeasurement.model_validate_json(text) == measurement
    assert [line[:17] for line in text.splitlines()[1:3]] == ['{"operator":"aten'] * 2
    assert (measurement.random, measurement.other) == (2, 3)
    assert dict(measurement.count(COLUMN)) == {CallSupport.NONE: 1, CallSupport.WRONG: 1}


def test_an_empty_measurement_can_be_stored() -> None:
    measurement = summarize()
    assert OperatorMeasurement.model_validate_json(measurement.to_lines()) == measurement
