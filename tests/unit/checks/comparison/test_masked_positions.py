"""The mask of an input selects the compared values of an output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.checks.comparison.compare_outputs import find_compared_positions
from exporter.checks.sample_checks import check_parity
from exporter.manifest import Dim, Fill, Input, Output
from exporter.records.record import CheckResult, Status
from exporter.runtimes.session import Array
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    make_reference,
    make_subject,
    write,
)
from tests.unit.factory import make_spec

MASK = np.array([[0, 1, 1], [1, 1, 1]])
VALUES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def declare_mask(*dims: Dim, **fill: object) -> Input:
    rule = Fill.model_validate({"kind": "ones"} | fill)
    return Input(name="m", shape=dims, at="args[0]", dtype="int64", fill=rule)


def find(mask: Array, item: Input, *dims: Dim, shape: tuple[int, ...]) -> Array | None:
    output = Output(name="y", shape=dims, masked_by="m")
    spec = make_spec(inputs=(item,), outputs=(output,), axes=())
    return find_compared_positions(spec, 0, {"m": mask}, shape)


def test_axes_are_matched_by_name() -> None:
    expected = np.broadcast_to((MASK == 1)[:, :, None], (2, 3, 4))
    named = find(MASK, declare_mask("b", "n"), "b", "n", 4, shape=(2, 3, 4))
    assert named is not None
    assert (named == expected).all()
    swapped = find(MASK, declare_mask("b", "n"), "n", 4, "b", shape=(3, 4, 2))
    assert swapped is not None
    assert (swapped == expected.transpose(1, 2, 0)).all()
    four = find(MASK[:, None, None], declare_mask("b", 1, 1, "n"), "b", "n", 4, shape=(2, 3, 4))
    assert four is not None
    assert (four == expected).all()


def test_padding_selects_its_zeros() -> None:
    item = declare_mask("b", "n", kind="padding", side="left")
    positions = find(1 - MASK, item, "b", "n", shape=(2, 3))
    assert positions is not None
    assert (positions == (MASK == 1)).all()


def test_pairs_of_complex_numbers_share_a_position() -> None:
    positions = find(MASK, declare_mask("b", "n"), "b", "n", shape=(2, 3, 2))
    assert positions is not None
    assert positions[0].tolist() == [[False, False], [True, True], [True, True]]


def test_a_mask_of_other_sizes_excludes_nothing() -> None:
    assert find(MASK, declare_mask("b", "n"), "b", "n", shape=(2, 4)) is None


def check(folder: Path, actual: Array, mask: Array = MASK, **fields: object) -> CheckResult:
    output = Output(name="y", shape=(2, 3), masked_by="m", **fields)
    sample = write(folder, 0, [mask], [VALUES])
    spec = contract(inputs=(declare_mask(2, 3),), outputs=(output,), axes=())
    context = make_subject(folder, spec=spec, reference=make_reference(sample))
    return check_parity(context, ConstantSession(actual, names=("y",)), "cpu")


@pytest.mark.parametrize("garbage", [np.nan, 1e30, 0.0])
def test_masked_values_may_differ(garbage: float, tmp_path: Path) -> None:
    actual = VALUES.copy()
    actual[0, 0] = garbage
    assert check(tmp_path, actual).status is Status.PASS


@pytest.mark.parametrize("wrong", [np.nan, 2.5])
def test_other_values_may_not_differ(wrong: float, tmp_path: Path) -> None:
    actual = VALUES.copy()
    actual[0, 1] = wrong
    result = check(tmp_path, actual)
    assert result.status is Status.FAIL
    assert "the index counts the 5 values that 'm' allows" in result.message


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (VALUES.astype(np.float64), "float64, PyTorch gives float32"),
        (VALUES[:, :2], "shape [2, 2], PyTorch gives [2, 3]"),
    ],
)
def test_dtype_and_shape_are_compared(actual: Array, message: str, tmp_path: Path) -> None:
    assert message in check(tmp_path, actual).message


def test_an_empty_comparison_fails(tmp_path: Path) -> None:
    result = check(tmp_path, VALUES, mask=np.zeros((2, 3), np.int64))
    assert result.status is Status.FAIL
    assert "no value is compared, because the mask 'm' excludes every position" in result.message
