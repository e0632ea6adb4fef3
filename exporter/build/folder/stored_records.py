"""Keep the records of a build folder in memory, to read each record file once per run.

Input: the build folder. Output: records by cell. Changes are made in memory and on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.build.folder.build_folder import BuildFolder
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.records.record import CellId, Record


class FolderRecords:
    """The records of one folder. The first access reads them.

    Args:
        folder: The folder of a model or of a job.
    """

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self._records: dict[CellId, Record] | None = None

    @property
    def by_cell(self) -> Mapping[CellId, Record]:
        """The records by their cell."""
        return self._load()

    def _load(self) -> dict[CellId, Record]:
        if self._records is None:
            self._records = self.folder.read_records()
        return self._records

    def write(self, record: Record) -> None:
        """Write a record, or replace it."""
        records = self._load()
        write_json(self.folder.record(record.cell), record)
        records[record.cell] = record

    def link(self, record: Record, source: Path) -> None:
        """Add a record as a second name of its file in another folder."""
        records = self._load()
        target = self.folder.record(record.cell)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(source)
        except OSError:  # a file system without hard links, or the model removed the file
            write_json(target, record)
        records[record.cell] = record

    def remove(self, cell: CellId) -> None:
        """Remove the record of a cell, if there is one."""
        records = self._load()
        self.folder.record(cell).unlink(missing_ok=True)
        records.pop(cell, None)

    def discard(self) -> None:
        """Read the records again at the next access, because the folder was repaired."""
        self._records = None


class StoredRecords:
    """The records of all models in a build folder.

    Args:
        build: The build folder.
    """

    def __init__(self, build: BuildFolder) -> None:
        self.build = build
        self._models: dict[str, FolderRecords] = {}

    def get(self, cell: CellId) -> Record | None:
        """Return the record of a cell, or None if there is none."""
        return self.get_model(cell.model).by_cell.get(cell)

    def get_model(self, model: str) -> FolderRecords:
        """Return the records of a model."""
        if model not in self._models:
            self._models[model] = FolderRecords(self.build.model_folder(model))
        return self._models[model]

    def replace_model(
        self,
        model: str,
        fresh: FolderRecords,
        before_removal: Callable[[Path], None] | None = None,
    ) -> None:
        """Replace the folder of a model; see `BuildFolder.replace_model`."""
        self.build.replace_model(model, fresh.folder, before_removal)
        fresh.folder = self.build.model_folder(model)
        self._models[model] = fresh

    def is_damaged(self, cell: CellId) -> bool:
        """Return True if the cell's record file exists and is invalid."""
        path = self.build.model_folder(cell.model).record(cell)
        return self.get(cell) is None and os.path.lexists(path)

    def find_missing_reason(self, cell: CellId) -> str:
        """Return why a cell has no record."""
        if self.is_damaged(cell):
            return "its record was changed or damaged"
        return "it has not been exported yet"
