"""Lookup tables: also rows that no sample reads must be equal to PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exporter.checks.protocol import CheckContext
from exporter.checks.sample_checks import LookupTableCheck, hash_table_parts
from exporter.jobs import TableParts
from exporter.records.record import CheckResult, Status
from exporter.runtimes.session import Array
from tests.unit.checks.contexts import ConstantSession, make_reference, make_subject

ROWS = 1000
WEIGHT = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
CHECK = LookupTableCheck()


def table(
    folder: Path, stored: Array, *weights: Array, operator: str = "Gather", outside: bool = False
) -> CheckContext:
    """Write a file that looks up rows in `stored`, of a model with these weights."""
    node = helper.make_node(operator, ["rows", "index"], ["y"])
    graph = helper.make_graph(
        [node],
        "table",
        [helper.make_tensor_value_info("index", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(stored, "rows")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    tables = tuple(
        TableParts(dtype="FLOAT", shape=weight.shape, parts=hash_table_parts(weight))
        for weight in weights
    )
    subject = make_subject(folder, model, reference=make_reference(tables=tables))
    if outside:
        onnx.save(
            model, subject.path, save_as_external_data=True, location="rows.data", size_threshold=0
        )
    return subject


def check(subject: CheckContext) -> CheckResult:
    assert CHECK.applies(subject)
    return CHECK(subject, ConstantSession(), "cpu")


def changed(row: int, times: float = 1.001) -> Array:
    array = WEIGHT.copy()
    array[row, 1] *= times
    return array


@pytest.mark.parametrize("outside", [False, True])
def test_a_copy_of_the_weight_passes(outside: bool, tmp_path: Path) -> None:
    result = check(table(tmp_path, WEIGHT, WEIGHT * 2, WEIGHT, outside=outside))
    assert result.status is Status.PASS
    assert result.metrics == {"tables": 1}


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("row", [0, 517, ROWS - 1])
def test_one_element_of_one_row_is_enough_to_fail(row: int, outside: bool, tmp_path: Path) -> None:
    result = check(table(tmp_path, changed(row), WEIGHT, outside=outside))
    assert result.status is Status.FAIL
    assert "1 of 64 parts of the table 'rows' are not PyTorch's" in result.message
    near = int(result.message.partition("near row ")[2].partition(" ")[0])
    assert abs(near - row) < 2 * ROWS / 64


def test_a_table_with_computed_values_is_not_checked(tmp_path: Path) -> None:
    assert not CHECK.applies(table(tmp_path, WEIGHT * np.float32(1.5), WEIGHT))
    assert not CHECK.applies(table(tmp_path, WEIGHT, WEIGHT[:, :2]))
    assert not CHECK.applies(table(tmp_path, WEIGHT))


def test_rows_of_zeros_do_not_identify_a_copy(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[:100] = 0
    assert not CHECK.applies(table(tmp_path, weight * np.float32(1.5), weight))
    assert check(table(tmp_path, weight, weight)).status is Status.PASS
    damaged = weight.copy()
    damaged[3] = 1
    assert check(table(tmp_path, damaged, weight)).status is Status.FAIL


def test_only_a_weight_that_an_input_indexes_is_a_table(tmp_path: Path) -> None:
    assert not CHECK.applies(table(tmp_path, changed(5), WEIGHT, operator="Add"))


def test_an_unreadable_file_is_left_to_other_checks(tmp_path: Path) -> None:
    subject = table(tmp_path, WEIGHT, WEIGHT, outside=True)
    (tmp_path / "rows.data").unlink()
    assert not CHECK.applies(subject)
