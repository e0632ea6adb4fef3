"""The items of `expect` that the gate prints foresee exactly the failures of the results."""

from __future__ import annotations

import pytest
import tomli

from exporter.core.device_name import DeviceName
from exporter.manifest import Expectation
from exporter.planning.plan import apply_expectations
from exporter.records.record import CheckResult, Record, Status
from exporter.report.rows.foreseen_failures import format_expectations
from tests.unit.factory import make_record, make_spec

WRONG = "output 'y': error 1.23e-02 at [0, 1] (file 5, PyTorch 4)"
DEVICES = (DeviceName("cpu"), DeviceName("cpu@old"))


def fail(cell: str, status: Status = Status.FAIL, **messages: str) -> Record:
    """Return the record of checks, or of a stage, that fail with these messages."""
    if status is not Status.FAIL:
        return make_record(cell, status, message=messages["stage"])
    checks = tuple(
        CheckResult(check=name, status=status, message=text) for name, text in messages.items()
    )
    check, message = next(iter(messages.items()))
    return make_record(cell, status, check=check, message=message, checks=checks)


CASES = [
    (
        fail("net/9/cpu", Status.ERROR, stage="no kernel 1"),
        ['{ opset = 9, device = "cpu", stage = '],
    ),
    (
        fail("net/9/cpu", parity=WRONG, axes=f"batch=7: {WRONG}", tables="row 7 differs"),
        ['check = ["parity", "axes"], match = "output \'y\': error"', 'check = "tables"'],
    ),
    (
        fail(
            "net/9/cpu",
            Status.ERROR,
            stage='net.py:9: "return x[:, :2]": opset 18: its file passes all checks; no scatter',
        ),
        ['match = "no scatter"'],
    ),
    (
        fail(
            "net/9/cpu",
            parity=f'net.py:9: "return x": opset 18: its file passes all checks; {WRONG}',
            axes=f"batch=7: {WRONG}",
        ),
        ['check = ["parity", "axes"], match = "output \'y\': error"'],
    ),
    (fail("net/9/cpu", Status.CRASH, stage="ended by SIGSEGV at convert"), ["ended by SIGSEGV"]),
    (fail("net/9/cpu@old", Status.ERROR, stage="no kernel 1"), ['device = "cpu@old"']),
    (make_record("net/9/cpu"), []),
    (make_record("net/9/cpu", Status.XPASS), []),
    (make_record("net/9/cpu", Status.UNAVAILABLE), []),
]


@pytest.mark.parametrize(("record", "parts"), CASES)
def test_the_items_make_the_failure_an_expected_one(record: Record, parts: list[str]) -> None:
    devices = DEVICES if "@" in record.cell.device else DEVICES[:1]
    spec = make_spec("net", opsets=(9, 11, 17), devices=devices)
    items = list(format_expectations(spec, [record]))
    assert len(items) == len(parts)
    assert all(part in item for part, item in zip(parts, items, strict=True))
    expected = [tomli.loads(f"item = {item}")["item"] for item in items]
    expect = tuple(
        Expectation(
            opsets=(each["opset"],),
            checks=tuple([each["check"]] if isinstance(each["check"], str) else each["check"])
            if "check" in each
            else (),
            **{key: each[key] for key in ("device", "stage", "match", "reason") if key in each},
        )
        for each in expected
    )
    judged = apply_expectations(spec.model_copy(update={"expect": expect}), record)
    assert judged.status is (Status.XFAIL if parts else record.status)


@pytest.mark.parametrize(
    ("opsets", "text"),
    [((9,), "9"), ((9, 11, 17), '"9..17"'), ((9, 17), "[9, 17]"), ((9, 11, 18), '["9..11", 18]')],
)
def test_a_range_includes_only_other_opsets_that_the_model_lacks(
    opsets: tuple[int, ...], text: str
) -> None:
    records = [fail(f"net/{opset}/cpu", Status.ERROR, stage="no kernel") for opset in opsets]
    (item,) = format_expectations(make_spec("net", opsets=(9, 11, 17, 18)), records)
    assert f"opset = {text}, " in item


def test_an_invalid_entry_cannot_be_foreseen() -> None:
    spec = make_spec("net", problems=("net.toml:1: broken",))
    assert not list(format_expectations(spec, [fail("net/9/cpu", Status.ERROR, stage="broken")]))
