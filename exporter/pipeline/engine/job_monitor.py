"""Report the progress of a running worker from the files in its folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from exporter.core.files import CELL_LIMIT, empty_regular_file, read_regular_file
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.pipeline.engine.protocol import JobEvents

#: Bytes. An endless output must not fill the disk, and only the end of a log is needed.
_MAX_LOG_SIZE = 64 * 1024 * 1024


class JobMonitor:
    """Observes one job from its start."""

    def __init__(self, job: Job, folder: JobFolder) -> None:
        self._folder = folder
        self._cells = set(job.cells())
        self._reported: set[Path] = set()
        self.last: Announcement | None = None

    def report_news(self, events: JobEvents) -> None:
        """Report all changes since the last call."""
        # Records first: the record of a cell that is announced later cannot be among them.
        records = self._folder.read_records(skip=self._reported)
        announcement = self.read_announcement()
        if announcement is None:
            return
        for cell, record in records.items():
            if cell in self._cells and cell not in announcement.cells:
                self._reported.add(self._folder.record(cell))
                events.on_record(record)
        if announcement != self.last:
            self.last = announcement
            events.on_announcement(announcement)

    def read_announcement(self) -> Announcement | None:
        """Return the last announcement, or None if there is no valid one."""
        try:
            return Announcement.model_validate_json(
                read_regular_file(self._folder.announcement, CELL_LIMIT)
            )
        except (OSError, ValueError):
            return None

    def truncate_logs(self) -> None:
        """Empty large logs. Workers open them for appending and continue at offset 0."""
        for log in self._folder.log(None).parent.glob("*.log"):
            with suppress(OSError):  # a model may remove its own folder
                if log.lstat().st_size > _MAX_LOG_SIZE:
                    empty_regular_file(log)
