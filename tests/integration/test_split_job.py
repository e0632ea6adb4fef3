"""Two workers that share the opsets of a model give the files and records of one worker."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.project import matrix_project
from exporter.records.record import Record, read_run
from tests.integration.project import run_exporter

MODEL = "mobilenet_v3_small"


def read_records(root: Path) -> dict[str, Record]:
    """Return the records without their durations."""
    records = read_run(root / "build/results.json").records
    untimed = (
        record.model_copy(
            update={
                "seconds": {},
                "checks": tuple(c.model_copy(update={"seconds": 0.0}) for c in record.checks),
            }
        )
        for record in records
    )
    return {str(record.cell): record for record in untimed}


def read_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "build" / MODEL).glob("*.[od]*")}


def list_job_opsets(root: Path) -> list[int]:
    job = json.loads((root / "build" / MODEL / "job.json").read_text())
    return [opset["opset"] for opset in job["opsets"]]


def test_two_workers_give_the_same_files_and_records_as_one(tmp_path: Path) -> None:
    matrix_project(tmp_path, (MODEL,), "18..25")
    command = ("export", "--no-store", "--jobs", "2")
    first = run_exporter(tmp_path, *command)
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(list_job_opsets(tmp_path)) == 8
    records, files = read_records(tmp_path), read_files(tmp_path)
    assert len(files) == 9
    again = run_exporter(tmp_path, *command, "--force")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(list_job_opsets(tmp_path)) == 4
    assert read_files(tmp_path) == files
    assert read_records(tmp_path) == records
    assert "[8/8] mobilenet_v3_small: 8 pass" in again.stdout
    assert (
        run_exporter(tmp_path, "plan").stdout.splitlines()[-1]
        == "0 cells to run, 8 to keep, 0 to skip"
    )
