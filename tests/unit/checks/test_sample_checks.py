from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exporter.checks import RUNTIME_CHECKS
from exporter.checks.protocol import CheckedFile
from exporter.checks.sample_checks import (
    NOTE_PREFIX,
    check_axes,
    check_cases,
    check_parity,
    check_tables,
    describe_masked_samples,
    hash_table_parts,
)
from exporter.jobs import Sample, TableParts
from exporter.manifest import Axis, Case, Fill, Input, Output
from exporter.records.record import CheckResult, Status
from exporter.runtimes.session import Array
from tests.unit.checks.contexts import (
    ConstantSession,
    FunctionSession,
    as_kind,
    at,
    axes_of,
    contract,
    declared,
    make_reference,
    make_subject,
    subject,
    value,
    write,
)


def test_every_size_passes(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7), at(tmp_path, 2, 1))
    assert check_axes.applies(context)
    result = check_axes(context, FunctionSession(axes_of()), "cpu")
    assert (result.check, result.status, result.message) == ("axes", Status.PASS, "")
    assert result.metrics["samples"] == 2, "the declared sample is parity's"


@pytest.mark.parametrize(
    ("wrong", "first", "others"),
    [
        ((7,), "batch=7: output 'y': error", ""),
        ((1,), "batch=1: output 'y': error", ""),
        ((7, 1, 11), "batch=7: output 'y': error", "; fails on batch=1, batch=11 too (3 of 3)"),
    ],
)
def test_every_failing_size_is_named(
    wrong: tuple[int, ...], first: str, others: str, tmp_path: Path
) -> None:
    sizes = [at(tmp_path, 1, 7), at(tmp_path, 2, 1), at(tmp_path, 3, 11)]
    result = check_axes(subject(tmp_path, *sizes), FunctionSession(axes_of(*wrong)), "cpu")
    assert result.status is Status.FAIL
    assert result.message.startswith(first)
    assert result.message.endswith(others)
    assert ("fails on" in result.message) is bool(others)
    assert result.metrics.get("only") == ("batch=2" if others else None)


def test_a_failure_on_all_sizes_names_a_few(tmp_path: Path) -> None:
    sizes = [at(tmp_path, size, size) for size in range(1, 15)]
    result = check_axes(subject(tmp_path, *sizes), FunctionSession(axes_of(*range(1, 15))), "cpu")
    names = ", ".join(f"batch={size}" for size in range(2, 10))
    assert result.message.endswith(f"; fails on {names}, ... too (14 of 14)")


def test_the_declared_inputs_do_not_count_for_axes(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7))
    assert check_axes(context, FunctionSession(axes_of(2)), "cpu").status is Status.PASS
    assert check_parity(context, FunctionSession(axes_of(2)), "cpu").status is Status.FAIL
    assert check_parity(context, FunctionSession(axes_of(7)), "cpu").status is Status.PASS


def test_a_size_that_pytorch_refuses_fails(tmp_path: Path) -> None:
    refused = Sample(
        index=9, name="batch=7", kind="axis", axes={"batch": 7}, error="ValueError: only even"
    )
    context = subject(tmp_path, refused, at(tmp_path, 1, 4))
    result = check_axes(context, FunctionSession(axes_of()), "cpu")
    assert result.status is Status.FAIL
    assert result.message == (
        "PyTorch itself fails on batch=7: ValueError: only even; "
        "fix the model, or promise less: narrow the axis with min, max or multiple_of"
    )


@pytest.mark.parametrize("samples", [(), ("declared",)])
def test_an_axis_without_a_tested_size_is_inconclusive(
    samples: tuple[str, ...], tmp_path: Path
) -> None:
    context = subject(tmp_path, *(declared(tmp_path) for _ in samples))
    result = check_axes(context, FunctionSession(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert result.message.startswith("only the exported size was tested for 'batch'")


def test_each_axis_needs_a_tested_size(tmp_path: Path) -> None:
    axes = (Axis(name="batch", example=2), Axis(name="time", example=3))
    inputs = (value(Input, "x", "batch, time"),)
    context = subject(tmp_path, at(tmp_path, 1, 7), inputs=inputs, axes=axes)
    result = check_axes(context, FunctionSession(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert "'time'" in result.message
    assert "'batch'" not in result.message


def test_without_dynamic_inputs_there_is_no_axes_check(tmp_path: Path) -> None:
    static = {"inputs": (value(Input, "x", "2, 3"),), "axes": (Axis(name="n", example=None),)}
    assert not check_axes.applies(subject(tmp_path, declared(tmp_path), **static))


def test_cases_are_compared(tmp_path: Path) -> None:
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    context = subject(tmp_path, declared(tmp_path), nine, cases=(Case(name="nine"),))
    assert check_cases.applies(context)
    assert check_cases(context, FunctionSession(axes_of()), "cpu").status is Status.PASS
    result = check_cases(context, FunctionSession(axes_of(9)), "cpu")
    assert (result.check, result.status) == ("cases", Status.FAIL)
    assert result.message.startswith("nine: output 'y': error")


def test_a_case_without_outputs_of_pytorch_does_not_pass(tmp_path: Path) -> None:
    assert not check_cases.applies(subject(tmp_path, declared(tmp_path)))
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    context = subject(tmp_path, nine, cases=(Case(name="nine"), Case(name="ten")))
    result = check_cases(context, FunctionSession(axes_of()), "cpu")
    message = "PyTorch's outputs are missing for ten: nothing was compared"
    assert (result.status, result.message) == (Status.ERROR, message)
    refused = Sample(index=1, name="ten", kind="case", axes={"batch": 2}, error="IndexError: 10")
    result = check_cases(
        subject(tmp_path, refused, cases=(Case(name="ten"),)), ConstantSession(), "cpu"
    )
    message = "ten: PyTorch itself fails in this case: IndexError: 10"
    assert (result.status, result.message) == (Status.FAIL, message)


ROWS = 1000
WEIGHT = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)


def table(
    folder: Path, stored: Array, *weights: Array, operator: str = "Gather", outside: bool = False
) -> CheckedFile:
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


def check(subject: CheckedFile) -> CheckResult:
    assert check_tables.applies(subject)
    return check_tables(subject, ConstantSession(), "cpu")


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
    assert not check_tables.applies(table(tmp_path, WEIGHT * np.float32(1.5), WEIGHT))
    assert not check_tables.applies(table(tmp_path, WEIGHT, WEIGHT[:, :2]))
    assert not check_tables.applies(table(tmp_path, WEIGHT))
    # Only a weight that an input indexes is a table.
    assert not check_tables.applies(table(tmp_path, changed(5), WEIGHT, operator="Add"))


def test_rows_of_zeros_do_not_identify_a_copy(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[:100] = 0
    assert not check_tables.applies(table(tmp_path, weight * np.float32(1.5), weight))
    assert check(table(tmp_path, weight, weight)).status is Status.PASS
    damaged = weight.copy()
    damaged[3] = 1
    assert check(table(tmp_path, damaged, weight)).status is Status.FAIL


def test_an_unreadable_file_is_left_to_other_checks(tmp_path: Path) -> None:
    subject = table(tmp_path, WEIGHT, WEIGHT, outside=True)
    (tmp_path / "rows.data").unlink()
    assert not check_tables.applies(subject)


VALUES = np.float32([1, 2, 3])


def make_masked_context(folder: Path) -> CheckedFile:
    item = Input(name="m", shape=(3,), at="args[0]", dtype="int64", fill=Fill(kind="ones"))
    spec = contract(inputs=(item,), outputs=(Output(name="y", shape=(3,)),), axes=())
    sample = write(folder, 0, [np.zeros(3, np.int64)], [VALUES])
    masked = sample.model_copy(update={"kind": "masked", "changed_input": "m"})
    return make_subject(folder, spec=spec, reference=make_reference(masked))


def test_a_difference_is_a_note_that_names_the_mask(tmp_path: Path) -> None:
    context = make_masked_context(tmp_path)
    assert describe_masked_samples(context, ConstantSession(VALUES), "cpu") == ()
    (note,) = describe_masked_samples(context, ConstantSession(VALUES + 1), "cpu")
    assert note.startswith(f"{NOTE_PREFIX}PyTorch and the file differ if 'm' allows no element")


def test_no_check_compares_the_sample(tmp_path: Path) -> None:
    context = make_masked_context(tmp_path)
    session = ConstantSession(VALUES + 1, names=("y",))
    checks = [check for check in RUNTIME_CHECKS if check.name in ("axes", "cases", "values")]
    assert not any(check.applies(context) for check in checks)
    assert context.reference.promised_samples == ()
    assert Status.FAIL not in [check(context, session, "cpu").status for check in checks]


@pytest.mark.parametrize(
    ("sizes", "proved"),
    [
        ([(7, 5), (4, 4)], "batch 2 to 7, time 3 to 5, 3 of 18 combinations"),
        ([(3, 4), (2, 4), (3, 3)], "batch 2 to 3, time 3 to 4"),
    ],
)
def test_combinations_that_did_not_run_are_counted(
    sizes: list[tuple[int, int]], proved: str, tmp_path: Path
) -> None:
    samples = [
        at(tmp_path, index, batch).model_copy(update={"axes": {"batch": batch, "time": time}})
        for index, (batch, time) in enumerate(sizes, 1)
    ]
    axes = (Axis(name="batch", example=2), Axis(name="time", example=3))
    result = check_axes(subject(tmp_path, *samples, axes=axes), FunctionSession(axes_of()), "cpu")
    assert (result.status, result.metrics["proved"]) == (Status.PASS, proved)
