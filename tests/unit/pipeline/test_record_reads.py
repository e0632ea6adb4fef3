"""An export reads each record file of the build folder once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from exporter.pipeline.build import run_plan
from exporter.planning.plan import make_plan
from exporter.records.record import Record
from tests.unit.pipeline.builders import BuildLog, FakeEngine, finish, manifest
from tests.unit.pipeline.test_build import TODAY, export, never


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each record is parsed, by cell."""
    reads: Counter[str] = Counter()
    read_record = Record.read.__func__  # type: ignore[attr-defined]  # a class method

    def read(cls: type[Record], data: bytes) -> Record:
        record = read_record(cls, data)
        reads[str(record.cell)] += 1
        return record

    monkeypatch.setattr(Record, "read", classmethod(read))
    return reads


def test_an_export_without_work_reads_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(finish))
    reads = count_reads(monkeypatch)
    run_plan(project, make_plan(project), FakeEngine(never), BuildLog(), TODAY)
    assert reads == {f"tiny/{opset}/cpu": 1 for opset in (17, 18, 19)}


def test_an_export_of_one_cell_reads_the_other_records_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(finish))
    (tmp_path / "build/tiny/18.onnx").unlink()
    reads = count_reads(monkeypatch)
    run_plan(project, make_plan(project), FakeEngine(finish), BuildLog(), TODAY)
    # The old record, the new one as the engine reports it, and the new one when the job has ended.
    assert reads == {"tiny/17/cpu": 1, "tiny/18/cpu": 3, "tiny/19/cpu": 1}
