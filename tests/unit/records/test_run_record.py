"""Results whose statuses contradict their checks are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.record import CheckResult, RunRecord, Stage, Status, read_run
from tests.unit.factory import make_record, make_run

PASSED = CheckResult(check="opset", status=Status.PASS)
FAILED = CheckResult(check="parity", status=Status.FAIL)
UNSURE = CheckResult(check="power", status=Status.INCONCLUSIVE)


def write(path: Path, status: Status, **fields: Any) -> Path:
    """Write results with a valid checksum."""
    path.write_text(make_run(make_record("net/18/cpu", status, **fields)).to_json())
    return path


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (Status.PASS, {"checks": (PASSED,)}),
        (Status.FAIL, {"checks": (PASSED, FAILED)}),
        (Status.INCONCLUSIVE, {"checks": (PASSED, UNSURE)}),
        (Status.XFAIL, {"checks": (PASSED, FAILED), "foreseen": "a reason"}),
    ],
)
def test_consistent_results_are_read(
    tmp_path: Path, status: Status, fields: dict[str, Any]
) -> None:
    (record,) = read_run(write(tmp_path / "results.json", status, **fields)).records
    assert record.status is status


@pytest.mark.parametrize(
    ("status", "fields", "problem"),
    [
        (Status.PASS, {"checks": (PASSED, FAILED)}, "the check parity (fail)"),
        (Status.PASS, {"checks": (UNSURE,)}, "the check power (inconclusive)"),
        (Status.XPASS, {"checks": (FAILED,)}, "the check parity (fail)"),
        (Status.PASS, {"stage": Stage.CONVERT}, "the failed stage convert"),
        (Status.XFAIL, {"checks": (FAILED,), "foreseen": ""}, "the lack of an expectation"),
    ],
)
def test_a_status_that_contradicts_the_checks_is_refused(
    tmp_path: Path, status: Status, fields: dict[str, Any], problem: str
) -> None:
    path = write(tmp_path / "results.json", status, **fields)
    with pytest.raises(ExporterError) as caught:
        read_run(path)
    assert f"net/18/cpu: the status {status} contradicts {problem}" in str(caught.value)
    assert caught.value.exit_code is ExitCode.UNREADABLE


HOSTILE = make_run(
    make_record("net/18/cpu", message='}\n    }\n  ]\n}\n,\n  "records": ['),
    make_record("net/19/cpu", Status.FAIL, log="\u2028    {\r\n"),
)


@pytest.mark.parametrize("run", [make_run(), make_run(make_record("net/18/cpu")), HOSTILE])
@pytest.mark.parametrize("indent", [2, None, 4])
def test_each_layout_of_the_records_is_read(run: RunRecord, indent: int | None) -> None:
    assert RunRecord.parse(bytearray(run.model_dump_json(indent=indent) + "\n", "utf-8")) == run


def test_an_invalid_record_is_named_by_its_number() -> None:
    text = HOSTILE.model_dump_json(indent=2).replace('"fail"', '"green"') + "\n"
    with pytest.raises(ValidationError, match=r"records\.1\.status"):
        RunRecord.parse(bytearray(text, "utf-8"))


def test_the_tree_of_all_records_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    contents: list[bytes] = []
    validate = RunRecord.model_validate_json

    def validate_json(content: bytearray) -> RunRecord:
        contents.append(bytes(content))
        return validate(content)

    monkeypatch.setattr(RunRecord, "model_validate_json", validate_json)
    RunRecord.parse(bytearray(HOSTILE.model_dump_json(indent=2) + "\n", "utf-8"))
    assert len(contents) == 1
    assert contents[0].endswith(b'"records": []}')
