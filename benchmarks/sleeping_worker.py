"""A worker without torch: it sleeps as the seed of the entry requires and writes its records."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from exporter.jobs import Announcement, Job, JobFolder, write_json
from exporter.records.record import Record, Stage, Status


def main() -> None:
    """Sleep for `seed` milliseconds."""
    job = Job.model_validate_json(Path(sys.argv[-1]).read_bytes())
    folder = JobFolder(Path(job.folder))
    announcement = Announcement(stage=Stage.CONVERT, cells=job.cells(), log="")
    write_json(folder.announcement, announcement)
    time.sleep(job.spec.seed / 1000)
    for cell in job.cells():
        parts = job.make_fingerprint(cell)
        record = Record(cell=cell, status=Status.SKIP, message="none", fingerprint=parts)
        write_json(folder.record(cell), record)


if __name__ == "__main__":
    main()
