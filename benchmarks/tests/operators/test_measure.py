"""Calls of real operators are exported and compared: full, partial, none and wrong ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("expecttest", reason="torch's tests need it")

from benchmarks.operators import measure
from benchmarks.operators.call_export import export_call
from benchmarks.operators.call_samples import select_calls
from benchmarks.operators.opinfo import FunctionSample, SampledFunction
from benchmarks.operators.results import CallResult, CallSupport, TestedFunction, summarize_calls

pytestmark = pytest.mark.filterwarnings("ignore")

COLUMN = "torchscript 18"
PACKETS = frozenset({"aten::add", "aten::relu", "aten::rand_like"})
NAMES = ("abs", "special.airy_ai", "std", "topk", "uniform")


@pytest.fixture(autouse=True, scope="module")
def one_column() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "OPSETS", {"torchscript": (18,)})
        yield


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TestedFunction]:
    folder = tmp_path_factory.mktemp("calls")
    done: list[tuple[int, int]] = []
    tested = measure.measure_functions(NAMES, folder, lambda *progress: done.append(progress))
    assert done[-1] == (len(NAMES), len(NAMES))
    # A second measurement reads the files.
    again = measure.measure_functions(NAMES, folder, lambda *_: pytest.fail("measured again"))
    assert again == tested
    return {each.name: each for each in tested}


def test_each_operator_has_the_support_that_its_calls_show(
    functions: dict[str, TestedFunction],
) -> None:
    measurement = summarize_calls([*functions.values()], [COLUMN], {})
    columns = {item.operator: item.columns[COLUMN] for item in measurement.operators}
    assert {name: column.support for name, column in columns.items()} == {
        "aten::abs": CallSupport.FULL,
        "aten::special_airy_ai": CallSupport.NONE,
        "aten::std": CallSupport.WRONG,
        "aten::topk": CallSupport.PARTIAL,
    }
    assert "correction" in columns["aten::std"].call
    assert "rank 0" in columns["aten::topk"].reason
    assert "aten::special_airy_ai" in columns["aten::special_airy_ai"].message


def test_random_functions_are_not_compared(functions: dict[str, TestedFunction]) -> None:
    assert functions["uniform"].calls == ()
    assert functions["uniform"].random


def test_an_unknown_function_is_a_problem_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such function; did you mean 'topk'"):
        measure.measure_functions(["topkk"], tmp_path, lambda *_: None)


def test_dynamo_files_are_compared_at_each_opset() -> None:
    sample = FunctionSample((torch.ones(2), torch.ones(2)), {"alpha": 2})
    outcomes = export_call("dynamo", torch.add, sample, (18, 25))
    assert {opset: outcome.result for opset, outcome in outcomes.items()} == {
        18: CallResult.RIGHT,
        25: CallResult.RIGHT,
    }


def test_other_numbers_are_wrong() -> None:
    def change(x: Tensor) -> Tensor:
        return x + 1 if torch.onnx.is_in_onnx_export() else x + 2

    sample = FunctionSample((torch.zeros(2),), {})
    (outcome,) = export_call("torchscript", change, sample, (18,)).values()
    assert (outcome.result, outcome.message) == (CallResult.WRONG, "1, PyTorch has 2")


def _sampled(*samples: FunctionSample, function: object = torch.add) -> SampledFunction:
    def generate() -> Iterator[FunctionSample]:
        yield from samples

    return SampledFunction("add", function, generate)  # type: ignore[arg-type]


def test_calls_with_other_arguments_come_first_and_equal_ones_once() -> None:
    x = torch.ones(2)
    plain = FunctionSample((x, x), {})
    empty = FunctionSample((torch.ones(0), torch.ones(0)), {"alpha": 3})
    alpha = FunctionSample((x, x), {"alpha": 2})
    selected = select_calls(_sampled(plain, empty, plain, alpha), PACKETS)
    assert [call.text for call in selected.calls] == [
        "add(float32[2], float32[2], alpha=2)",
        "add(float32[2], float32[2])",
        "add(float32[0], float32[0], alpha=3)",
    ]
    assert "alpha=2" in selected.calls[0].features
    assert "without alpha" in selected.calls[1].features


def test_a_small_result_of_a_random_function_is_not_compared() -> None:
    many, few = FunctionSample((torch.ones(64),), {}), FunctionSample((torch.ones(0),), {})
    selected = select_calls(_sampled(many, few, function=torch.rand_like), PACKETS)
    assert (selected.calls, selected.random) == ((), 2)
    alone = select_calls(_sampled(few, function=torch.relu), PACKETS)
    assert [call.operator for call in alone.calls] == ["aten::relu"]


def test_a_call_of_several_operators_belongs_to_none() -> None:
    def both(x: Tensor) -> Tensor:
        return torch.relu(torch.add(x, 1)).exp()

    sample = FunctionSample((torch.ones(2),), {})
    selected = select_calls(_sampled(sample, function=both), frozenset({"aten::relu"}))
    assert (selected.calls, selected.other) == ((), 1)


def test_a_crash_costs_one_call() -> None:
    def dies(x: Tensor, number: int) -> Tensor:
        if number == 2 and torch.onnx.is_in_onnx_export():
            os.abort()
        return torch.add(x, number)

    samples = [FunctionSample((torch.ones(2), number), {}) for number in (1, 2, 3)]
    tested = measure._measure_function(_sampled(*samples, function=dies), PACKETS)
    assert [call.outcomes[COLUMN].result for call in tested.calls] == [
        CallResult.RIGHT,
        CallResult.CRASH,
        CallResult.RIGHT,
    ]
