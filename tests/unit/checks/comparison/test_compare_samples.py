"""The check `parity`, and the parts that `axes` and `cases` share with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli

from exporter.checks import RUNTIME_CHECKS
from exporter.checks.comparison.compare_samples import describe_inputs, list_alternatives
from exporter.checks.protocol import (
    CheckedFile,
    SampleData,
    write_rounded_outputs,
    write_ties,
)
from exporter.checks.sample_checks import check_parity
from exporter.jobs import JobFolder
from exporter.manifest import Case, Device, Input, Output, Tolerance
from exporter.records.record import CheckResult, Status
from exporter.runtimes import RunFailure, open_session
from exporter.runtimes.session import Array, OnnxValue
from tests.unit.checks.contexts import (
    ConstantSession,
    FunctionSession,
    as_kind,
    at,
    contract,
    declared,
    doubled,
    draw,
    make_reference,
    make_subject,
    subject,
    value,
    write,
)

CPU = Device(name="cpu", runtime="onnxruntime")


def parity(subject: CheckedFile, session: Any) -> CheckResult:
    assert check_parity.applies(subject)
    return check_parity(subject, session, "cpu")


# --- through ONNX Runtime and onnx.reference ------------------------------------------------------


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_a_correct_file_passes_all_checks(runtime: Any, tmp_path: Path) -> None:
    case = as_kind(at(tmp_path, 2, 5), "case", "five")
    samples = (declared(tmp_path), at(tmp_path, 1, 7), case)
    context = subject(tmp_path, *samples, cases=(Case(name="five"),))
    session = open_session(context.path, Device(name="here", runtime=runtime))
    results = [
        check(context, session, "here") for check in RUNTIME_CHECKS if check.applies(context)
    ]
    assert [(result.check, result.status, result.message) for result in results] == [
        (name, Status.PASS, "")
        for name in ("placement", "determinism", "power", "parity", "axes", "cases")
    ]
    assert results[3].metrics == {"samples": 1, "max_abs": 0.0, "of_limit": 0.0}


# --- outputs --------------------------------------------------------------------------------------


def test_the_message_of_a_wrong_value(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path), tolerance=Tolerance(atol=0.01))
    wrong = doubled(2)[1][0]
    wrong[0, 1] = 5.0
    before = draw(2)[0, 1] * 2
    error = 5.0 - float(before)
    result = parity(context, ConstantSession(wrong))
    assert result.status is Status.FAIL
    assert result.message == (
        f"output 'y': error {error:.2e} at [0, 1] (file 5, PyTorch {before:.6g}), "
        f"{error / 0.01:.3g} times the bound 1.00e-02 (atol 0.01, rtol 0 from the manifest)"
    )
    assert result.metrics["max_abs"] == pytest.approx(error)
    assert result.metrics["outside"] == pytest.approx(1 / 6)
    assert {"mean_abs", "p99_abs", "max_rel", "mean_rel", "p99_rel", "cosine", "sqnr_db"} <= set(
        result.metrics
    )
    assert result.metrics["worst"] == f"[0, 1]: file 5, PyTorch {before:.6g}"


@pytest.mark.parametrize(
    "tolerance",
    [Tolerance(), Tolerance(atol=1e-6), Tolerance(rtol=1e-3), Tolerance(atol=0, outside=0.2)],
)
def test_the_proposed_tolerance_passes_and_a_smaller_one_fails(
    tolerance: Tolerance, tmp_path: Path
) -> None:
    x = draw(40)
    sample = write(tmp_path, 0, [x], [x * 2], exact=[x.astype(np.float64) * 2], axes={"batch": 40})
    off = (x * np.float32(2.02)).astype(np.float32)

    def compare_with(bound: Tolerance) -> CheckResult:
        reference = make_reference(sample, noise=(1e-7,))
        spec = contract(tolerance=bound)
        return parity(make_subject(tmp_path, spec=spec, reference=reference), ConstantSession(off))

    table = tomli.loads(str(compare_with(tolerance).metrics["needs"]))["tolerance"]
    needed = Tolerance.model_validate(table)
    assert needed.atol is not None
    assert compare_with(needed).status is Status.PASS
    less = needed.model_copy(update={"atol": needed.atol * 0.85})
    assert compare_with(less).status is Status.FAIL


def raise_failure(x: Any) -> Any:
    raise RunFailure("no kernel for this")


RIGHT = doubled(2)[1][0]


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (ConstantSession(), "the runtime gives 0 outputs, declared 1"),
        (ConstantSession(RIGHT, RIGHT), "the runtime gives 2 outputs, declared 1"),
        (ConstantSession(RIGHT, names=("z",)), "the file's outputs are z, declared y"),
        (ConstantSession(RIGHT, names=()), "the file's outputs are none, declared y"),
        (ConstantSession(RIGHT, names=("y", "y")), "the file's outputs are y, y, declared y"),
        (ConstantSession(RIGHT, names=("y", "z")), "the file's outputs are y, z, declared y"),
        (FunctionSession(raise_failure), "the runtime fails: no kernel for this"),
    ],
)
def test_outputs_without_a_comparison_fail(session: Any, message: str, tmp_path: Path) -> None:
    result = parity(subject(tmp_path, declared(tmp_path)), session)
    assert (result.status, result.message) == (Status.FAIL, message)


def two_outputs(folder: Path) -> CheckedFile:
    x = draw(2)
    sample = write(folder, 0, [x], [x + 1, x - 1])
    outputs = (value(Output, "y", "batch, 3"), value(Output, "z", "batch, 3"))
    return make_subject(
        folder, spec=contract(outputs=outputs), reference=make_reference(sample, outputs=2)
    )


def test_all_outputs_are_compared_by_name(tmp_path: Path) -> None:
    context, x = two_outputs(tmp_path), draw(2)

    def compare(y: Array, z: Array) -> CheckResult:
        return parity(context, ConstantSession(y, z, names=("y", "z")))

    assert compare(x + 1, x - 1).status is Status.PASS
    assert compare(x + 1, x).message.startswith("output 'z': error 1.00e+00")
    swapped = compare(x - 1, x + 1)
    assert swapped.status is Status.FAIL
    assert swapped.message.startswith("output 'y': error 2.00e+00")
    assert swapped.message.endswith("; 1 more problem")
    # A tolerance is proposed if one would pass.
    assert "needs" in swapped.metrics
    broken = compare(x - 1, (x - 1)[:1])
    assert broken.status is Status.FAIL
    assert "needs" not in broken.metrics


def test_inputs_are_passed_by_name(tmp_path: Path) -> None:
    a, b = draw(2, 1), draw(2, 2)
    sample = write(tmp_path, 0, [a, b], [a - b])
    inputs = (value(Input, "b", "batch, 3"), value(Input, "a", "batch, 3"))
    context = subject(tmp_path, sample, inputs=inputs)
    assert parity(context, FunctionSession(lambda b, a: [b - a])).status is Status.PASS
    assert parity(context, FunctionSession(lambda b, a: [a - b])).status is Status.FAIL


# --- the contract and PyTorch ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "problem"),
    [
        ("batch, 4", "float32", "is declared [batch, 4] with batch=2, PyTorch gives [2, 3]"),
        ("batch", "float32", "is declared [batch] with batch=2, PyTorch gives [2, 3]"),
        ("batch, 3, 1", "float32", "is declared [batch, 3, 1] with batch=2, PyTorch gives [2, 3]"),
        ("3, batch", "float32", "is declared [3, batch] with batch=2, PyTorch gives [2, 3]"),
        ("n, n", "float32", "is declared [n, n] with n=2, PyTorch gives [2, 3]"),
        ("batch, 3", "float64", "is declared float64, PyTorch gives float32"),
        ("batch, 3", "int64", "is declared int64, PyTorch gives float32"),
        # An axis that only outputs have has PyTorch's size.
        *((shape, "float32", "") for shape in ("batch, 3", "2, 3", "n, 3", "n, m", "batch, m")),
    ],
)
def test_a_file_equal_to_pytorch_but_not_as_declared_fails(
    shape: str, dtype: str, problem: str, tmp_path: Path
) -> None:
    context = subject(tmp_path, declared(tmp_path), outputs=(value(Output, "y", shape, dtype),))
    result = parity(context, ConstantSession(doubled(2)[1][0]))
    assert (result.status is Status.FAIL) is bool(problem)
    assert result.message == (f"output 'y' {problem}" if problem else "")


def test_an_axis_of_two_outputs_has_one_size(tmp_path: Path) -> None:
    x = draw(2)
    sample = write(tmp_path, 0, [x], [x[:, :1].copy(), x])
    outputs = (value(Output, "y", "batch, n"), value(Output, "z", "batch, n"))
    context = make_subject(
        tmp_path, spec=contract(outputs=outputs), reference=make_reference(sample, outputs=2)
    )
    result = parity(context, ConstantSession(x[:, :1].copy(), x, names=("y", "z")))
    assert result.status is Status.FAIL
    assert result.message == (
        "output 'z' is declared [batch, n] with batch=2, n=1, PyTorch gives [2, 3]"
    )


# --- float64 --------------------------------------------------------------------------------------


def measured(folder: Path, noise: float | None, **fields: Any) -> CheckedFile:
    """Return a subject with an error of PyTorch's float32 of 1e-3 in one element, at scale 4."""
    exact = np.linspace(-4, 4, 60).reshape(20, 3)
    expected = exact.astype(np.float32)
    expected[7, 1] += 1e-3
    sample = write(folder, 0, [draw(20)], [expected], exact=[exact], axes={"batch": 20})
    return make_subject(
        folder, spec=contract(**fields), reference=make_reference(sample, noise=(noise,))
    )


def session_with_error(error: float, position: tuple[int, int] = (3, 2)) -> ConstantSession:
    exact = np.linspace(-4, 4, 60).reshape(20, 3)
    exact[position] += error
    return ConstantSession(exact.astype(np.float32))


@pytest.mark.parametrize(("error", "passes"), [(0.0, True), (7.9e-3, True), (8.1e-3, False)])
def test_the_error_against_float64_may_be_eight_times_pytorchs(
    error: float, passes: bool, tmp_path: Path
) -> None:
    context = measured(tmp_path, 1e-3 / 4)
    result = parity(context, session_with_error(error))
    assert (result.status is Status.PASS) is passes
    assert result.metrics["of_noise"] == pytest.approx(error / 1e-3, rel=1e-3, abs=1e-3)
    assert result.metrics["of_limit"] == pytest.approx(error / 8e-3, rel=1e-3, abs=1e-3)
    if not passes:
        assert "times the bound 8.00e-03 (8 x PyTorch's own float32 noise); if" in result.message


def test_the_limit_is_relative_to_the_size_of_the_outputs(tmp_path: Path) -> None:
    exact = np.linspace(-1e-9, 1e-9, 60).reshape(20, 3)
    expected = (exact * 1.001).astype(np.float32)
    sample = write(tmp_path, 0, [draw(20)], [expected], exact=[exact], axes={"batch": 20})
    context = make_subject(tmp_path, reference=make_reference(sample, noise=(1e-3,)))
    assert (
        parity(context, ConstantSession((exact * 1.007).astype(np.float32))).status is Status.PASS
    )
    result = parity(context, ConstantSession((exact * 1.009).astype(np.float32)))
    assert result.status is Status.FAIL
    assert result.metrics["of_noise"] == pytest.approx(9.0, rel=1e-3)


@pytest.mark.parametrize(
    ("noise", "fields"),
    [(None, {}), (1e-3 / 4, {"tolerance": Tolerance(atol=5e-4)})],
    ids=["float64 computes another function", "explicit tolerance"],
)
def test_pytorchs_own_outputs_are_the_reference(
    noise: float | None, fields: dict[str, Any], tmp_path: Path
) -> None:
    result = parity(measured(tmp_path, noise, **fields), session_with_error(0.0))
    assert result.status is Status.FAIL
    assert "at [7, 1]" in result.message


def test_zeros_are_compared_with_pytorchs_own(tmp_path: Path) -> None:
    """In float64, an output that is 1e-30 in float32 is zero."""
    tiny = np.full((20, 3), 1e-30, np.float32)
    sample = write(tmp_path, 0, [draw(20)], [tiny], exact=[np.zeros((20, 3))], axes={"batch": 20})
    context = make_subject(tmp_path, reference=make_reference(sample, noise=(0.0,)))
    assert parity(context, ConstantSession(tiny.copy())).status is Status.PASS
    assert parity(context, ConstantSession(tiny * 2)).status is Status.FAIL


# --- samples --------------------------------------------------------------------------------------


def test_a_missing_declared_sample_is_an_error(tmp_path: Path) -> None:
    result = parity(subject(tmp_path, at(tmp_path, 1, 7)), ConstantSession())
    assert result.status is Status.ERROR
    assert "nothing was compared" in result.message


@pytest.mark.parametrize("name", ["input_0.pb", "output_0.pb"])
def test_a_damaged_sample_is_an_error_and_no_failure(name: str, tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path))
    (JobFolder(tmp_path).sample(0) / name).write_bytes(b"\x08")
    result = parity(context, ConstantSession(doubled(2)[1][0]))
    assert result.status is Status.ERROR
    assert result.message.startswith("PyTorch's outputs cannot be read: test_data_set_0")


def test_integers_are_exact_under_any_tolerance(tmp_path: Path) -> None:
    x = draw(2)
    sample = write(tmp_path, 0, [x], [np.argmax(x, axis=1)])
    outputs = (value(Output, "y", "batch", "int64"),)
    context = subject(
        tmp_path, sample, outputs=outputs, tolerance=Tolerance(atol=10.0, outside=0.9)
    )
    assert parity(context, ConstantSession(np.argmax(x, axis=1))).status is Status.PASS
    result = parity(context, ConstantSession(np.argmax(x, axis=1) + 1))
    assert result.status is Status.FAIL
    assert "2 of 2 elements differ" in result.message


def test_an_empty_batch_passes(tmp_path: Path) -> None:
    context = subject(tmp_path, as_kind(at(tmp_path, 1, 0), "declared", "declared"))
    assert parity(context, ConstantSession(np.zeros((0, 3), np.float32))).status is Status.PASS
    assert parity(context, ConstantSession(np.zeros((0, 4), np.float32))).status is Status.FAIL


def test_a_runtime_that_writes_into_its_inputs_does_not_affect_the_next(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path))

    def overwrite_input(x: Any) -> Any:
        y = x * np.float32(2)
        x[:] = 0
        return [y]

    assert [parity(context, FunctionSession(overwrite_input)).status for _ in range(2)] == [
        Status.PASS
    ] * 2


def check_large_noise(folder: Path, error: float, **changes: Any) -> CheckResult:
    """Return the result of a file with this error, if PyTorch's own error is 0.01 of the scale."""
    x = draw(16)
    y = x / np.abs(x).max()
    spec = contract(**changes)
    sample = write(folder, 0, [x], [y], exact=[y.astype(np.float64)], axes={"batch": 16})
    reference = make_reference(sample, large_noise=(0.01,))
    context = make_subject(folder, spec=spec, reference=reference)
    return check_parity(context, ConstantSession(y + np.float32(error)), "cpu")


def test_an_error_within_large_noise_is_inconclusive_with_the_figure(tmp_path: Path) -> None:
    result = check_large_noise(tmp_path, 0.05)
    assert result.status is Status.INCONCLUSIVE
    assert "PyTorch's own float32 error is 1.0e-02 of the scale" in result.message
    assert "declare `tolerance = { noise = 8 }`" in result.message
    assert "needs" in result.metrics


@pytest.mark.parametrize(
    ("error", "changes", "status"),
    [
        (1e-6, {}, Status.PASS),
        (0.2, {}, Status.FAIL),
        (0.05, {"tolerance": Tolerance(noise=8)}, Status.PASS),
        (0.2, {"tolerance": Tolerance(noise=8)}, Status.FAIL),
        (0.05, {"tolerance": Tolerance(atol=1e-3)}, Status.FAIL),
        (np.nan, {}, Status.FAIL),
        (0.05, {"outputs": (value(Output, "y", "batch, 3", "float16"),)}, Status.FAIL),
    ],
)
def test_other_errors_have_a_verdict(
    error: float, changes: dict[str, Any], status: Status, tmp_path: Path
) -> None:
    """The last contract differs from PyTorch's dtype, which no noise explains."""
    assert check_large_noise(tmp_path, error, **changes).status is status


def make_sample(*runs: Array, tied: Array | None = None) -> SampleData:
    return SampleData(
        inputs={},
        outputs=(runs[0],),
        float64_outputs=(runs[0].astype(np.float64),),
        tied_outputs=() if tied is None else (tied,),
        rounded_outputs=tuple((run,) for run in runs[1:]),
    )


def list_outputs(actual: OnnxValue, data: SampleData) -> list[object]:
    others = list(list_alternatives([actual], data))
    assert all(other.float64_outputs == (None,) for other in others)
    return [np.asarray(other.outputs[0]).tolist() for other in others]


#: Rows of scores; with other rounding the second and third row change places.
_ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
_SWAPPED = _ROWS[[0, 2, 1, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("actual", "has_selections", "status"),
    [
        (_ROWS[[0, 1, 3, 2, 4, 5, 6, 7]], True, Status.INCONCLUSIVE),
        (_ROWS[[0, 1, 3, 2, 4, 5, 6, 7]], False, Status.FAIL),
        (_SWAPPED * np.float32(1.01), True, Status.FAIL),
        (_ROWS[:4], True, Status.FAIL),
        (_SWAPPED, True, Status.PASS),
    ],
)
def test_an_order_that_rounding_selects_is_inconclusive(
    actual: Array, *, has_selections: bool, status: Status, tmp_path: Path
) -> None:
    sample = write(tmp_path, 0, [draw(8)], [_ROWS], exact=[_ROWS.astype(float)], axes={"batch": 8})
    folder = JobFolder(tmp_path).sample(0)
    if has_selections:
        write_ties(folder, [_ROWS], [None])
    write_rounded_outputs(folder, [[_SWAPPED]])
    context = make_subject(tmp_path, reference=make_reference(sample, noise=(1e-7,)))
    result = parity(context, ConstantSession(actual))
    assert result.status is status
    assert ('`compare = { rows = "unordered" }`' in result.message) == (
        status is Status.INCONCLUSIVE
    )


ZEROS, ONE_ROW, TWO_ROWS = (np.array(rows) for rows in ([0, 0, 0], [0, 1, 0], [0, 0, 2]))
USUAL, TIED = np.array([0.0, 1.0]), np.array([1.0, 0.0])
NEAREST = make_sample(ZEROS, ONE_ROW, TWO_ROWS)
OTHER_ROWS = make_sample(np.zeros(2), np.ones(2))


@pytest.mark.parametrize(
    ("actual", "data", "expected"),
    [
        (np.array([0, 1, 2]), NEAREST, [[0, 1, 0], [0, 0, 2], [0, 1, 2]]),
        # A value that no run has stays wrong.
        (np.array([5, 1, 2]), NEAREST, [[0, 1, 0], [0, 0, 2], [0, 1, 2]]),
        (TIED, make_sample(USUAL), []),
        (TIED, make_sample(USUAL, tied=TIED), [[1.0, 0.0]]),
        # Outputs without rows have no combination.
        (np.array(1.0), make_sample(np.array(0.0), np.array(1.0)), [1.0]),
        ([np.zeros(2)], OTHER_ROWS, [[1.0, 1.0]]),
        (np.zeros(3), OTHER_ROWS, [[1.0, 1.0]]),
    ],
)
def test_each_row_has_the_nearest_run(
    actual: OnnxValue, data: SampleData, expected: list[object]
) -> None:
    assert list_outputs(actual, data) == expected


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((2, 4), np.int64), "mask: all 0"),
        (np.ones(3, bool), "mask: all True"),
        (np.array(4), "mask: 4"),
        (np.array([[1, 0, 0, 1], [1, 0, 1, 1]]), "mask: 3 of 8 elements are 0"),
        (
            np.array([[0, 0], [1, 0]]),
            "mask: 3 of 4 elements are 0, 1 of 2 rows have no other value",
        ),
        (np.array([True, False]), "mask: 1 of 2 elements are False"),
        (np.array([5, 7]), ""),
        (np.zeros(3, np.float32), ""),
        (np.zeros((0, 3), np.int64), ""),
    ],
)
def test_the_changed_input_is_described(array: Array, text: str) -> None:
    inputs = {"mask": array, "other": np.array([0, 1])}
    assert describe_inputs(inputs, "mask") == text


def test_other_samples_describe_all_masks() -> None:
    mask = np.array([0, 1, 1])
    inputs = {"a": mask, "n": np.array(4), "full": np.ones(3, bool), "b": mask.astype(bool)}
    text = "a: 1 of 3 elements are 0, b: 1 of 3 elements are False"
    assert describe_inputs(inputs) == text
    assert describe_inputs({}, "mask") == "", "the input was omitted"
