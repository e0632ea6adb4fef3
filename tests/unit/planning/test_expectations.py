"""An expectation matches exactly the failures that it describes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exporter.manifest import Expectation
from exporter.planning.plan import apply_expectations
from exporter.records.record import CellId, CheckResult, Record, Stage, Status
from tests.unit.planning.test_plan import spec

CELL = CellId(model="net", opset=17, device="cpu")


def failure(**changes: object) -> Record:
    values: dict[str, object] = {
        "cell": CELL,
        "status": Status.ERROR,
        "stage": Stage.CONVERT,
        "message": "Exporting the operator 'aten::SDPA' is not supported",
    }
    return Record.model_validate(values | changes)


def apply(record: Record, *expected: Expectation) -> Record:
    return apply_expectations(spec(expect=expected), record)


@pytest.mark.parametrize(
    "expectation",
    [
        Expectation(reason="needs 14"),
        Expectation(reason="needs 14", stage="convert"),
        Expectation(reason="needs 14", stage="convert", match="aten::sdpa"),
        Expectation(reason="needs 14", opsets=(16, 17), device="c*"),
    ],
)
def test_an_expected_failure_is_xfail_with_its_reason(expectation: Expectation) -> None:
    record = apply(failure(), expectation)
    assert record.status is Status.XFAIL
    assert record.foreseen == "needs 14"
    # The problem of the cell is unchanged.
    assert record.stage is Stage.CONVERT
    assert "aten::SDPA" in record.message


@pytest.mark.parametrize(
    ("expectation", "note"),
    [
        (Expectation(reason="r", stage="capture"), "expected a failure at capture (r)"),
        (
            Expectation(reason="r", stage="convert", match="gelu"),
            "expected a failure at convert with 'gelu' (r)",
        ),
        (Expectation(reason="r", checks=("parity",)), "expected a failure of parity (r)"),
    ],
)
def test_another_failure_is_red_and_contains_the_expectation(
    expectation: Expectation, note: str
) -> None:
    record = apply(failure(), expectation)
    assert record.status is Status.ERROR
    assert record.expectation == note


def test_an_unexpected_pass_is_red() -> None:
    record = apply(Record(cell=CELL, status=Status.PASS), Expectation(reason="r", stage="load"))
    assert record.status is Status.XPASS
    assert not record.status.is_green
    assert "a failure at load (r)" in record.message


TORCH = {"tool.torch": "2.13.0+cpu 0123456789ab"}
PASSED = Record(cell=CELL, status=Status.PASS, fingerprint=TORCH)
DEAD = tuple(
    failure(status=status, message="died with signal SIGSEGV")
    for status in (Status.CRASH, Status.TIMEOUT, Status.KILLED)
)


@pytest.mark.parametrize(
    ("record", "fields", "status"),
    [
        # A dead worker matches only by its message.
        *((each, {}, each.status) for each in DEAD),
        *((each, {"match": "SIGSEGV"}, Status.XFAIL) for each in DEAD),
        # An expectation may be for some versions of torch.
        (failure(fingerprint=TORCH), {"torch": "<2.14"}, Status.XFAIL),
        (failure(fingerprint=TORCH), {"torch": ">=2.14"}, Status.ERROR),
        (failure(fingerprint=TORCH), {"torch": ""}, Status.XFAIL),
        (PASSED, {"torch": "<2.14"}, Status.XPASS),
        (PASSED, {"torch": ">=2.14"}, Status.PASS),
        (failure(), {"torch": "<2.14"}, Status.ERROR),
    ],
)
def test_the_status_of_a_cell_with_an_expectation(
    record: Record, fields: dict[str, str], status: Status
) -> None:
    item = Expectation(reason="r", **fields)
    assert apply(record, item).status is status


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (failure(), {"opsets": (16,)}),
        (failure(), {"device": "cuda"}),
        (failure(status=Status.SKIP), {}),
        (failure(status=Status.UNAVAILABLE), {}),
    ],
)
def test_other_cells_and_cells_that_did_not_run_match_no_expectation(
    record: Record, fields: dict[str, object]
) -> None:
    assert apply(record, Expectation.model_validate({"reason": "r", **fields})) == record


def test_one_of_several_expectations_is_enough() -> None:
    record = apply(
        failure(),
        Expectation(reason="old", stage="capture"),
        Expectation(reason="new", stage="convert"),
    )
    assert record.status is Status.XFAIL
    assert record.foreseen == "new"


def wrong(*failed: str, status: Status = Status.FAIL, **messages: str) -> Record:
    """Return a record whose checks `failed` do not pass, the deciding one first."""
    checks = tuple(
        CheckResult(
            check=name,
            status=(status if name in failed else Status.PASS),
            message=messages.get(name, "error 1.0") if name in failed else "",
        )
        for name in ("signature", "load", "determinism", "power", "parity", "axes", "values")
    )
    stage = Stage.STRUCTURE if failed[0] == "signature" else Stage.PARITY
    message = messages.get(failed[0], "error 1.0")
    return failure(status=status, stage=stage, check=failed[0], message=message, checks=checks)


def expect(*checks: str, **fields: str) -> Expectation:
    return Expectation(reason=f"known {' '.join(checks)}", checks=checks, **fields)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (wrong("axes"), [expect("axes")]),
        (wrong("axes"), [expect("parity", "axes")]),
        (wrong("parity", "values"), [expect("parity", "values", stage="parity")]),
        (wrong("parity", "values"), [expect("values"), expect("parity")]),
        (wrong("signature", "load"), [expect("signature", stage="structure"), expect("load")]),
        (wrong("signature", "axes"), [expect("signature"), expect("axes", stage="parity")]),
        (wrong("parity", "values", values="other 'x': error 2.0"), [expect("parity", "values")]),
        (wrong("parity", "values"), [expect("parity", "values", match="ERROR")]),
        # PyTorch differs from itself, so a comparison with it is no second failure.
        (wrong("determinism", "parity", status=Status.INCONCLUSIVE), [expect("determinism")]),
    ],
)
def test_every_failing_check_is_foreseen_by_name(
    record: Record, expected: list[Expectation]
) -> None:
    judged = apply(record, *expected)
    assert judged.status is Status.XFAIL
    assert judged.foreseen == "; ".join(
        sorted((item.reason for item in expected), key=record_order(record))
    )


def record_order(record: Record) -> Callable[[str], int]:
    return lambda reason: min(
        record.failed_checks.index(check)
        for check in record.failed_checks
        if check in reason.split()
    )


@pytest.mark.parametrize(
    ("record", "expected", "unforeseen"),
    [
        (wrong("axes", "values"), [expect("axes")], "'values'"),
        (wrong("axes", "values"), [expect("values")], "'axes'"),
        (wrong("signature", "parity", "axes"), [expect("signature")], "'parity', 'axes'"),
        (wrong("signature", "load"), [expect("signature")], "'load'"),
        (wrong("signature", "axes"), [expect("signature", "axes", stage="structure")], "'axes'"),
        (wrong("determinism", "signature"), [expect("determinism")], "'signature'"),
        (
            wrong("parity", "values", values="NaN or Inf differ"),
            [expect("parity", "values", match="error")],
            "'values'",
        ),
        # An expectation without a name is for stages without checks.
        (wrong("axes"), [Expectation(reason="any")], "'axes'"),
        (wrong("axes"), [Expectation(reason="any", stage="parity", match="error")], "'axes'"),
    ],
)
def test_another_failing_check_is_red_and_is_named(
    record: Record, expected: list[Expectation], unforeseen: str
) -> None:
    judged = apply(record, *expected)
    assert judged.status is record.status
    assert judged.expectation.endswith(f"; no expectation with `check` matches {unforeseen}"), (
        judged.expectation
    )
