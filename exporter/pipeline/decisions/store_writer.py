"""Put the results of a job into the store.

The state of files and tools is read again: if an input changed during the job, the result may
depend on either version and is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from exporter.cache.fingerprint import have_tools_changed
from exporter.cache.store import Store
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Manifest
from exporter.pipeline.decisions.build_results import RecordValidator
from exporter.records.record import Record


class StoreWriter:
    """Writes results to the store.

    Args:
        manifest: The project.
        today: The date of the run.
        store: The store, or None if results are not stored.
    """

    def __init__(self, manifest: Manifest, today: date, store: Store | None) -> None:
        self._manifest = manifest
        self._today = today
        self._store = store

    def put(self, records: Iterable[Record], folder: JobFolder) -> str:
        """Store the records that are up to date.

        Args:
            records: The records of one job.
            folder: The model's folder with their files.

        Returns:
            Why nothing is stored from now on. The message is returned once, then "".
        """
        if self._store is None or have_tools_changed():
            return ""
        validator = RecordValidator(self._manifest, self._today)
        return self._store.put([each for each in records if validator.is_valid(each)], folder)

    def adopt(self, folder: Path) -> None:
        """Move the external data of a model's folder into the store before it is deleted."""
        if self._store is not None:
            self._store.adopt(folder)
