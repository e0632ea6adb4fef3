"""What a worker has written so far, without waiting for its end.

In: a job. Out: calls of a listener for each new announcement and each record that stands.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from exporter.build.engine.protocol import JobEvents
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder

#: A worker that prints without end must not fill the disk; its last output is what counts.
_LOG_LIMIT = 64 * 1024 * 1024


class JobMonitor:
    """Follows one job from its start."""

    def __init__(self, job: Job, folder: JobFolder) -> None:
        self._folder = folder
        self._cells = {str(cell) for cell in job.cells()}
        self._heard: set[Path] = set()
        self._last: Announcement | None = None

    def report_news(self, listener: JobEvents) -> None:
        """Reports what is new since the last look."""
        # Records first: of a cell announced since, none can have been read yet.
        records = self._folder.read_records(skip=self._heard)
        announcement = self.announcement()
        if announcement is None:
            return
        at_work = {str(cell) for cell in announcement.cells}
        for name, record in records.items():
            if name in self._cells and name not in at_work:
                self._heard.add(self._folder.record(record.cell))
                listener.on_record(record)
        if announcement != self._last:
            self._last = announcement
            listener.on_announcement(announcement)

    def announcement(self) -> Announcement | None:
        """The worker's last announcement; None where it made none (that can be read)."""
        try:
            return Announcement.model_validate_json(self._folder.announcement.read_bytes())
        except (OSError, ValueError):
            return None

    def truncate_logs(self) -> None:
        """Empties logs that have grown beyond reason; workers append, so they go on from 0."""
        for log in self._folder.log(None).parent.glob("*.log"):
            with suppress(OSError):  # a model may take away its own folder
                if S_ISREG((found := log.lstat()).st_mode) and found.st_size > _LOG_LIMIT:
                    log.write_bytes(b"")
