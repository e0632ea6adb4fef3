"""What a job made goes into the store, where it would come out the same again.

In: the records that a job made, and the model's folder with their files. Out: entries of the store,
or a line that says why there are none.

The files and tools are looked at anew: what changed while the job was at work may not be what the
records say that they were made from.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from pathlib import Path

from exporter.build.decisions.build_results import RecordValidator
from exporter.cache.fingerprint import have_tools_changed
from exporter.cache.store import Store
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Manifest
from exporter.records.record import Record


class StoreWriter:
    """Fills the store.

    Args:
        manifest: The project.
        today: The date of the run.
        store: Where cells are kept; None: nowhere.
    """

    def __init__(self, manifest: Manifest, today: date, store: Store | None) -> None:
        self._manifest = manifest
        self._today = today
        self._store = store

    def keep(self, made: Iterable[Record], folder: JobFolder) -> str:
        """Keeps what still holds.

        Args:
            made: The records of one job.
            folder: The model's folder, with their files in place.

        Returns:
            Why nothing is kept from now on, said once; empty where there is nothing to say.
        """
        if self._store is None or have_tools_changed():
            return ""
        judge = RecordValidator(self._manifest, self._today)
        return self._store.put([record for record in made if judge.holds(record)], folder)

    def adopt(self, folder: Path) -> None:
        """Keeps what only a model's folder has that is about to go."""
        if self._store is not None:
            self._store.adopt(folder)

    def evict_if_needed(self) -> None:
        """Keeps the store within its limits."""
        if self._store is not None:
            with suppress(OSError):  # another run tidies at the same time, or the next one will
                self._store.evict_if_needed()
