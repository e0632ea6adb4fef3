"""Which files are published, by what is known of their cells."""

from __future__ import annotations

import pytest

from exporter.planning.plan import PlannedCell
from exporter.records.baseline import parse_cell
from exporter.records.record import Record, Status
from exporter.tools.publish import Candidate, LeftOut, choose
from tests.unit.factory import DYNAMO, make_artifact, make_record

RED = [status for status in Status if status.is_red]


def planned(*cells: str, skip: str = "") -> list[PlannedCell]:
    return [PlannedCell(cell=parse_cell(cell), route=DYNAMO, skip=skip) for cell in cells]


def decide(*records: Record, include_red: bool = False) -> Candidate | LeftOut:
    """The one answer for records of one file."""
    known = {str(record.cell): record for record in records}
    chosen, left_out = choose(planned(*known), known, {}, include_red=include_red)
    (answer,) = (*chosen, *left_out)
    return answer


def test_a_file_that_passes_on_all_its_devices_is_published() -> None:
    found = decide(make_record("net/18/cpu"), make_record("net/18/ort"))
    assert isinstance(found, Candidate)
    assert [record.cell.device for record in found.records] == ["cpu", "ort"]
    assert not found.warning


@pytest.mark.parametrize("status", [*RED, Status.UNAVAILABLE])
def test_one_device_that_is_not_green_is_enough_to_refuse(status: Status) -> None:
    found = decide(make_record("net/18/cpu"), make_record("net/18/ort", status, message="no"))
    assert isinstance(found, LeftOut)
    assert found.is_refused
    assert found.why.startswith(status.value)
    assert found.why.endswith("on ort: no")


def test_a_foreseen_failure_is_left_out_and_no_fault() -> None:
    found = decide(make_record("net/18/cpu"), make_record("net/18/ort", Status.XFAIL))
    assert isinstance(found, LeftOut)
    assert not found.is_refused


@pytest.mark.parametrize("status", [Status.FAIL, Status.XPASS, Status.XFAIL])
def test_red_files_are_published_on_demand_with_a_warning(status: Status) -> None:
    record = make_record("net/18/cpu", status, artifact=make_artifact("net", 18), message="off")
    found = decide(record, include_red=True)
    assert isinstance(found, Candidate)
    assert "on cpu: off" in found.warning


def test_without_a_file_nothing_is_published_on_demand() -> None:
    found = decide(make_record("net/18/cpu", Status.ERROR, message="no way"), include_red=True)
    assert isinstance(found, LeftOut)
    assert found.why.startswith("there is no file; error at convert on cpu: no way")


def test_two_files_of_one_opset_are_refused() -> None:
    other = make_artifact("net", 18, sha256="1" * 64)
    found = decide(make_record("net/18/cpu"), make_record("net/18/ort", artifact=other))
    assert isinstance(found, LeftOut)
    assert "proved on different files" in found.why


def test_a_missing_result_is_refused_with_its_reason() -> None:
    cells = planned("net/18/cpu", "net/18/ort")
    known = {"net/18/cpu": make_record("net/18/cpu")}
    _, (found,) = choose(cells, known, {"net/18/ort": "its manifest entry changed since"})
    assert found.why == (
        "no result on ort: its manifest entry changed since; run `exporter export net`"
    )
    assert found.is_refused


def test_skipped_devices_do_not_count_and_skipped_files_are_no_fault() -> None:
    cells = [*planned("net/17/cpu"), *planned("net/17/ort", skip="no kernel")]
    known = {"net/17/cpu": make_record("net/17/cpu")}
    chosen, left_out = choose(cells, known, {})
    assert [item.opset for item in chosen] == [17]
    assert not left_out
    _, (found,) = choose(planned("net/18/cpu", skip="too new"), {}, {})
    assert found.why == "the manifest skips it: too new"
    assert not found.is_refused
