"""Indices that select among equal values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.checks.comparison.compare_outputs import are_ties
from exporter.checks.sample_checks import PARITY
from exporter.checks.sample_files import SelectionData, write_ties
from exporter.jobs import JobFolder
from exporter.manifest import Output
from exporter.records.record import Status
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    draw,
    make_reference,
    make_subject,
    value,
    write,
)

KEYS = np.array([[1.0, 3.0, 3.0, 3.0 + 1e-6, 2.0], [5.0, 5.0, 5.0, 4.0, 4.0]])


def make_selection(**changes: Any) -> SelectionData:
    """Return the values from which two indices of each row select."""
    fields: dict[str, Any] = {
        "keys": KEYS,
        "rows": np.array([[0, 0], [1, 1]]),
        "exact": np.zeros(KEYS.shape, bool),
        "margin": 0.0,
        "is_first_promised": False,
    }
    return SelectionData(**{**fields, **changes})


EXPECTED = np.array([[1, 2], [0, 1]])
EXACT = np.ones(KEYS.shape, bool)


@pytest.mark.parametrize(
    ("actual", "changes", "expected"),
    [
        ([[1, 2], [0, 1]], {}, True),
        ([[2, 1], [2, 0]], {}, True),
        # Values that were rounded on their own differ by a few units, exact ones do not.
        ([[3, 1], [0, 1]], {}, True),
        ([[3, 1], [0, 1]], {"exact": EXACT}, False),
        ([[2, 1], [0, 1]], {"exact": EXACT}, True),
        # PyTorch promises the first of exact values.
        ([[2, 1], [0, 1]], {"exact": EXACT, "is_first_promised": True}, False),
        ([[2, 1], [0, 1]], {"is_first_promised": True}, True),
        # Another value, even if it is near.
        ([[4, 1], [0, 1]], {}, False),
        ([[4, 1], [0, 1]], {"margin": 0.5}, False),
        ([[4, 1], [0, 1]], {"margin": 1.5}, True),
        ([[1, 2], [0, 3]], {}, False),
        # An index that repeats, or that is no index.
        ([[1, 1], [0, 1]], {}, False),
        ([[1, 2], [0, 5]], {}, False),
        ([[1, -4], [0, 1]], {}, False),
    ],
)
def test_an_index_is_right_if_it_selects_an_equal_value(
    actual: list[list[int]], changes: dict[str, Any], *, expected: bool
) -> None:
    assert are_ties(np.array(actual), EXPECTED, make_selection(**changes)) is expected


def test_another_shape_or_dtype_is_no_tie() -> None:
    assert not are_ties(EXPECTED[:1], EXPECTED, make_selection())
    assert not are_ties(EXPECTED.astype(np.int32), EXPECTED, make_selection())


def test_a_nan_is_equal_to_no_value() -> None:
    keys = np.where(KEYS == 3, np.nan, KEYS)
    assert not are_ties(np.array([[2, 1], [0, 1]]), EXPECTED, make_selection(keys=keys))


@pytest.mark.parametrize(
    ("actual", "status", "is_tied"),
    [
        (EXPECTED, Status.PASS, False),
        (EXPECTED[:, ::-1].copy(), Status.PASS, True),
        (np.array([[1, 2], [2, 1]]), Status.PASS, True),
        (np.array([[1, 4], [0, 1]]), Status.FAIL, False),
    ],
)
def test_the_check_accepts_ties_and_counts_them(
    actual: Any, status: Status, is_tied: bool, tmp_path: Path
) -> None:
    pytorch = np.array([[1, 2], [0, 1]])
    sample = write(tmp_path, 0, [draw(2)], [pytorch])
    write_ties(JobFolder(tmp_path).sample(0), [EXPECTED], [make_selection()])
    spec = contract(outputs=(value(Output, "y", "batch, 2", "int64"),))
    context = make_subject(tmp_path, spec=spec, reference=make_reference(sample))
    result = PARITY(context, ConstantSession(actual), "cpu")
    assert result.status is status
    assert result.metrics.get("tied_samples", 0) == int(is_tied)


def test_other_values_follow_the_order_of_ties(tmp_path: Path) -> None:
    """Values at tied indices are right in PyTorch's order and in that of ONNX, and in no other."""
    x = draw(2)
    sample = write(tmp_path, 0, [x], [x])
    write_ties(JobFolder(tmp_path).sample(0), [x[:, ::-1].copy()], [None])
    context = make_subject(tmp_path, reference=make_reference(sample))
    for output, status in ((x, Status.PASS), (x[:, ::-1], Status.PASS), (x[::-1], Status.FAIL)):
        result = PARITY(context, ConstantSession(np.ascontiguousarray(output)), "cpu")
        assert result.status is status
