"""Outputs that are sequences: the count first, then each item by its own limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.checks.comparison.compare_outputs import compare_output
from exporter.checks.comparison.compare_samples import find_undeclared_outputs
from exporter.checks.comparison.tolerance import OutputContext
from exporter.checks.protocol import CheckContext
from exporter.checks.sample_checks import PARITY
from exporter.checks.sample_files import (
    DamagedSample,
    SampleData,
    read_sample,
    write_sample,
)
from exporter.manifest import Output
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    make_reference,
    make_subject,
    write,
)

ROWS = Output(name="rows", shape=("n",), kind="sequence")
FIVE = [np.float32([1, 2]), np.float32([3e-3, 4e-3]), np.float32([5, 6])]


def subject(folder: Path, *items: Any, dtype: str = "float32", **fields: Any) -> CheckContext:
    """Return a contract of one list with PyTorch's outputs."""
    output = ROWS.model_copy(update={"dtype": dtype})
    exact = [[item.astype(np.float64) for item in items]] if "noise" in fields else []
    x = np.zeros((2, 3), np.float32)
    sample = write(folder, 0, [x], [list(items)], exact=exact)
    reference = make_reference(sample, **fields)
    return make_subject(folder, spec=contract(outputs=(output,)), reference=reference)


def check(context: CheckContext, outputs: object) -> CheckResult:
    return PARITY(context, ConstantSession(outputs, names=("rows",)), "cpu")


def test_the_same_items_pass(tmp_path: Path) -> None:
    result = check(subject(tmp_path, *FIVE), [item.copy() for item in FIVE])
    assert (result.status, result.message) == (Status.PASS, "")
    assert result.metrics["max_abs"] == 0.0


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (FIVE[:2], "output 'rows': 2 items, PyTorch gives 3"),
        ([*FIVE, FIVE[0]], "output 'rows': 4 items, PyTorch gives 3"),
        (FIVE[:1], "output 'rows': 1 item, PyTorch gives 3"),
        ([], "output 'rows': 0 items, PyTorch gives 3"),
        (np.stack(FIVE), "output 'rows': no sequence but a ndarray"),
        ([FIVE[0], FIVE[2], FIVE[1]], "item 1 of output 'rows': error"),
        ([FIVE[0], FIVE[1] + np.float32(1e-5), FIVE[2]], "item 1 of output 'rows': error 1.00e-05"),
        ([FIVE[0], FIVE[1].astype(np.float64), FIVE[2]], "item 1 of output 'rows': float64, PyT"),
        ([FIVE[0][:1], *FIVE[1:]], "item 0 of output 'rows': shape [1], PyTorch gives [2]"),
        ([*FIVE[:2], np.float32([5, np.nan])], "item 2 of output 'rows': NaN or Inf differ"),
        ([*FIVE[:2], [1.0]], "item 2 of output 'rows': no tensor but a list"),
    ],
)
def test_the_problem_names_the_item(outputs: object, message: str, tmp_path: Path) -> None:
    result = check(subject(tmp_path, *FIVE, noise=(1e-7,)), outputs)
    assert result.status is Status.FAIL
    assert result.message.startswith(message)


def test_integers_are_equal_in_each_item(tmp_path: Path) -> None:
    items = [np.int64([1, 2]), np.int64([3])]
    context = subject(tmp_path, *items, dtype="int64")
    assert check(context, items).status is Status.PASS
    wrong = check(context, [items[0], np.int64([4])])
    assert "item 1 of output 'rows': 1 of 1 elements differ" in wrong.message


def test_an_empty_list_is_a_list(tmp_path: Path) -> None:
    context = subject(tmp_path)
    assert check(context, []).status is Status.PASS
    assert check(context, [FIVE[0]]).message == "output 'rows': 1 item, PyTorch gives 0"


def test_each_item_has_the_limit_of_its_own_size(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE, noise=(1e-6,))
    data = read_sample(context.folder.sample(0), context.spec)
    near = [item * np.float32(1 + 1e-6) for item in FIVE]
    result = list(compare_output(near, data, OutputContext(context, 0, "cpu")))
    assert [label for label, _ in result] == [
        f"item {index} of output 'rows'" for index in range(3)
    ]
    assert not any(comparison.problem for _, comparison in result)
    assert max(c.limit_ratio for _, c in result) < 2 * min(c.limit_ratio for _, c in result)


def test_a_sequence_file_with_a_tensor_is_damaged(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE)
    folder = context.folder.sample(0)
    write_sample(folder, [np.zeros((2, 3), np.float32)], [np.stack(FIVE)])
    with pytest.raises(DamagedSample, match=r"output_0.pb cannot be read"):
        read_sample(folder, context.spec)


@pytest.mark.parametrize(
    ("outputs", "values", "expected"),
    [
        ((ROWS,), (FIVE,), []),
        ((ROWS,), ([FIVE[0], FIVE[1][:1]],), []),
        ((ROWS.model_copy(update={"shape": (2,)}),), (FIVE,), []),
        (
            (ROWS.model_copy(update={"shape": ("batch",)}),),
            ([FIVE[0], FIVE[1][:1]],),
            ["item 1 of output 'rows' is declared [batch] with batch=2, PyTorch gives [1]"],
        ),
        (
            (ROWS, Output(name="y", shape=("n",))),
            (FIVE, FIVE[0][:1]),
            [
                f"item {index} of output 'rows' is declared [n] with n=1, PyTorch gives [2]"
                for index in range(3)
            ],
        ),
        (
            (ROWS.model_copy(update={"shape": ("k", "k")}),),
            ([np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32)],),
            ["item 1 of output 'rows' is declared [k, k] with k=2, PyTorch gives [2, 3]"],
        ),
        (
            (ROWS,),
            ([FIVE[0].astype(np.float64)],),
            ["item 0 of output 'rows' is declared float32, PyTorch gives float64"],
        ),
    ],
)
def test_items_are_compared_with_their_declared_sizes(
    outputs: tuple[Output, ...], values: tuple[Any, ...], expected: list[str]
) -> None:
    assert list(find_undeclared_outputs(outputs, values, {"batch": 2})) == expected


def test_the_limit_is_smaller_if_a_sample_has_no_float64_outputs(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE, noise=(1e-3,))
    data = SampleData(inputs={}, outputs=(FIVE,), float64_outputs=(None,))
    near = [item + np.float32(1e-4) for item in FIVE]
    shares = [
        max(
            c.limit_ratio
            for _, c in compare_output(near, data, OutputContext(context, 0, "cpu", is_exact))
        )
        for is_exact in (True, False)
    ]
    assert shares[0] != shares[1]


def test_an_overflow_is_reported_with_a_mismatch_of_inf(tmp_path: Path) -> None:
    overflow = "float16 overflows in PyTorch: 1 of 6 elements"
    context = subject(tmp_path, *FIVE[:2], np.float32([5, np.inf]), overflow=(overflow,))
    result = check(context, FIVE)
    assert result.message.startswith("item 2 of output 'rows': NaN or Inf differ in 1 of 2")
    assert result.message.endswith(overflow)
    off = [FIVE[0] + 1, FIVE[1], np.float32([5, np.inf])]
    assert overflow not in check(context, off).message
