"""The diagnosis recognizes files that are wrong at masked positions only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.manifest import Fill, Input, Output
from exporter.worker.diagnose.fault_analysis import explain_masked_rows
from tests.unit.checks.contexts import (
    Array,
    ConstantSession,
    contract,
    make_reference,
    make_subject,
    write,
)

MASK = np.array([[0, 1, 1], [1, 1, 1]])
EMPTY_ROW = np.array([[0, 0, 0], [1, 1, 1]])
VALUES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def explain(folder: Path, actual: Array, mask: Array = MASK, fill: str = "mask") -> str:
    rule = Fill.model_validate({"kind": fill})
    item = Input(name="m", shape=(2, 3), at="args[0]", dtype="int64", fill=rule)
    spec = contract(inputs=(item,), outputs=(Output(name="y", shape=(2, 3)),), axes=())
    sample = write(folder, 0, [mask], [VALUES])
    context = make_subject(folder, spec=spec, reference=make_reference(sample))
    return explain_masked_rows(context, "cpu", sample, ConstantSession(actual, names=("y",)))


def change(*index: int) -> Array:
    actual = VALUES.copy()
    actual[index] += 5
    return actual


def test_garbage_at_masked_positions_is_named(tmp_path: Path) -> None:
    evidence = explain(tmp_path, change(0, 0))
    assert evidence.startswith("right at all positions with 1 in 'm', wrong only at masked")
    assert "declare masked_by = 'm'" in evidence


def test_the_opposite_mask_is_recognized(tmp_path: Path) -> None:
    evidence = explain(tmp_path, change(0, 0), mask=1 - MASK, fill="padding")
    assert "right at all positions with 0 in 'm'" in evidence
    assert 'fill = { padding = "right" }' in evidence


def test_a_row_without_an_allowed_element_is_named(tmp_path: Path) -> None:
    assert "with 1 in 'm'" in explain(tmp_path, change(0, 1), mask=EMPTY_ROW, fill="ones")
    assert "with 0 in 'm'" in explain(tmp_path, change(0, 1), mask=1 - EMPTY_ROW, fill="zeros")


@pytest.mark.parametrize("fill", ["ones", "mask", "bernoulli"])
@pytest.mark.parametrize("mask", [MASK, EMPTY_ROW])
def test_wrong_values_elsewhere_are_not_excused(mask: Array, fill: str, tmp_path: Path) -> None:
    assert explain(tmp_path, change(1, 1), mask=mask, fill=fill) == ""


def test_zeros_in_complete_rows_are_no_mask(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), fill="ones") == ""


def test_random_ones_are_no_mask(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), fill="bernoulli") == ""


def test_a_mask_that_excludes_everything_proves_nothing(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), mask=np.zeros_like(MASK)) == ""
