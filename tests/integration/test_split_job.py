"""A real model whose opsets two workers share comes out as one worker makes it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.project import matrix_project
from exporter.records.record import Record, read_run
from tests.integration.project import run_exporter

MODEL = "mobilenet_v3_small"


def found(root: Path) -> dict[str, Record]:
    """The records, without what time they took."""
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


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "build" / MODEL).glob("*.[od]*")}


def opsets(root: Path) -> list[int]:
    job = json.loads((root / "build" / MODEL / "job.json").read_text())
    return [opset["opset"] for opset in job["opsets"]]


def test_two_workers_make_the_same_files_and_records_as_one(tmp_path: Path) -> None:
    matrix_project(tmp_path, (MODEL,), "18..25")
    command = ("export", "--no-store", "--jobs", "2")
    first = run_exporter(tmp_path, *command)
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(opsets(tmp_path)) == 8
    records, made = found(tmp_path), files(tmp_path)
    assert len(made) == 9
    again = run_exporter(tmp_path, *command, "--force")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(opsets(tmp_path)) == 4
    assert files(tmp_path) == made
    assert found(tmp_path) == records
    assert "[8/8] mobilenet_v3_small: 8 pass" in again.stdout
    assert (
        run_exporter(tmp_path, "plan").stdout.splitlines()[-1]
        == "0 cells to run, 8 to keep, 0 to skip"
    )
