from __future__ import annotations

from pathlib import Path

import pytest

from exporter.jobs import Announcement, JobFolder, write_json
from exporter.pipeline.engine import JobMonitor
from exporter.records.record import CellId, Record
from tests.unit.pipeline.builders import announcement, job, record, spec, write


class EventLog:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_announcement(self, announcement: Announcement) -> None:
        self.events.append("at work: " + " ".join(str(cell) for cell in announcement.cells))

    def on_record(self, record: Record) -> None:
        self.events.append(f"recorded: {record.cell}")


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    path = tmp_path / "tiny"
    path.mkdir()
    return JobFolder(path)


def announce(folder: JobFolder, *cells: CellId) -> None:
    write_json(folder.announcement, announcement(cells))


def test_a_record_is_reported_after_the_next_announcement(folder: JobFolder) -> None:
    of = job(folder.path, spec())
    one, two, three = of.cells()
    watch, events = JobMonitor(of, folder), EventLog()
    watch.report_news(events)
    announce(folder, one)
    watch.report_news(events)
    write(of, record(of, one))
    watch.report_news(events)
    assert events.events == ["at work: tiny/17/cpu"]
    announce(folder, two, three)
    watch.report_news(events)
    watch.report_news(events)
    assert events.events[1:] == ["recorded: tiny/17/cpu", "at work: tiny/18/cpu tiny/19/cpu"]


def test_records_of_another_job_are_not_reported(folder: JobFolder) -> None:
    of = job(folder.path, spec())
    earlier = job(folder.path, spec(opsets=(9,)))
    write(earlier, record(earlier, earlier.cells()[0]))
    announce(folder, of.cells()[0])
    events = EventLog()
    JobMonitor(of, folder).report_news(events)
    assert events.events == ["at work: tiny/17/cpu"]


def test_a_damaged_announcement_is_ignored(folder: JobFolder) -> None:
    watch = JobMonitor(job(folder.path, spec()), folder)
    assert watch.read_announcement() is None
    folder.announcement.write_text("{")
    assert watch.read_announcement() is None
    events = EventLog()
    watch.report_news(events)
    assert events.events == []


def test_a_reported_record_is_not_read_again(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = job(folder.path, spec())
    one, two, _ = of.cells()
    watch, events = JobMonitor(of, folder), EventLog()
    write(of, record(of, one))
    announce(folder, two)
    watch.report_news(events)
    write(of, record(of, two))
    read: list[bytes] = []
    real = Record.read
    monkeypatch.setattr(Record, "read", lambda data: (read.append(data), real(data))[1])
    watch.report_news(events)
    watch.report_news(events)
    # The announced cell may be written again. It is read until the next announcement.
    assert read == [folder.record(two).read_bytes()] * 2
