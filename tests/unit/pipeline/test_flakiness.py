"""Different results of two runs with the same inputs are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.jobs import Job, JobFolder, write_json
from exporter.pipeline.build_folder import FolderRecords, describe_flakiness, mark_flaky
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.records.baseline import parse_cell
from exporter.records.record import Record, Source, Stage, Status
from tests.unit.factory import make_record
from tests.unit.pipeline import builders

INPUTS: dict[str, Any] = {
    "fingerprint": {"entry": "1", "tool.torch": "2.13.0 abc"},
    "sources": (Source(file="net.py", state="1" * 64),),
    "packages": {"numpy": "2.0 def"},
}
CELL = parse_cell("net/18/cpu")


def record(status: str, **fields: Any) -> Record:
    return make_record(CELL, status, **{**INPUTS, **fields})


OTHER, MOVED = ((Source(file="net.py", state=state),) for state in ("2" * 64, ""))
SAME_INPUTS = "in an earlier run of the very same inputs"


@pytest.mark.parametrize(
    ("before", "after", "description"),
    [
        (record("fail"), record("pass"), f"was fail at parity {SAME_INPUTS}"),
        (record("pass"), record("fail", check="axes"), f"was pass {SAME_INPUTS}"),
        (record("error"), record("inconclusive"), f"was error at convert {SAME_INPUTS}"),
        (
            record("fail", check="axes"),
            record("fail", check="parity"),
            f"was fail at parity (axes) {SAME_INPUTS}",
        ),
        (record("error", stage=Stage.LOAD), record("error"), f"was error at load {SAME_INPUTS}"),
        (record("pass"), record("pass"), ""),
        (record("fail", message="off by 3"), record("fail", message="off by 4"), ""),
        # Other inputs, or a source that changed during the export.
        (record("fail"), record("pass", fingerprint={"entry": "2"}), ""),
        (record("fail"), record("pass", sources=OTHER), ""),
        (record("fail"), record("pass", packages={}), ""),
        (record("fail", sources=MOVED), record("pass", sources=MOVED), ""),
        # A transient status.
        (record("crash"), record("pass"), ""),
        (record("pass"), record("timeout"), ""),
        (record("unavailable"), record("pass"), ""),
    ],
)
def test_a_different_status_with_the_same_inputs_is_flaky(
    before: Record, after: Record, description: str
) -> None:
    assert describe_flakiness(before, after) == description


def test_the_mark_stays_until_an_input_changes(tmp_path: Path) -> None:
    def folder(name: str, stored_record: Record) -> JobFolder:
        job_folder = JobFolder(tmp_path / name)
        write_json(job_folder.record(stored_record.cell), stored_record)
        return job_folder

    first, second = folder("1", record("fail")), folder("2", record("pass"))
    mark_flaky(FolderRecords(first), FolderRecords(second))
    marked = second.read_records()[CELL]
    assert marked.flaky.startswith("was fail at parity")
    third = folder("3", record("pass"))
    mark_flaky(FolderRecords(second), FolderRecords(third))
    assert third.read_records()[CELL] == marked
    other = folder("4", record("pass", packages={}))
    mark_flaky(FolderRecords(third), FolderRecords(other))
    assert other.read_records()[CELL].flaky == ""
    mark_flaky(FolderRecords(JobFolder(tmp_path / "none")), FolderRecords(other))
    assert not (tmp_path / "none").exists()


def test_a_run_marks_a_result_that_differs_from_the_last_one(tmp_path: Path) -> None:
    def fail(of: Job) -> JobResult:
        builders.write_reference(of, "same")
        for cell in of.cells():
            builders.write(of, builders.record(of, cell, Status.FAIL))
        return builders.outcome(of, ExitKind.EXITED, 0)

    project = builders.manifest(tmp_path)
    builders.export(project, builders.FakeEngine(fail))
    builders.export(project, builders.FakeEngine(builders.finish), force=True)
    records = builders.read_results(project).records
    assert {(each.status, each.flaky.partition(" in ")[0]) for each in records} == {
        (Status.PASS, "was fail")
    }
