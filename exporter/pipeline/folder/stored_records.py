"""Keep the records of a build folder in memory, to read each record file once per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.jobs.job_folder import JobFolder, write_json
from exporter.pipeline.folder.build_folder import BuildFolder
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
    """The records of all models in a build folder, and of its toolchains.

    Args:
        build: The build folder.
    """

    def __init__(self, build: BuildFolder) -> None:
        self.build = build
        self._models: dict[str, FolderRecords] = {}
        self._toolchains: dict[str, StoredRecords] = {}

    def get(self, cell: CellId) -> Record | None:
        """Return the record of a cell, or None if there is none.

        The paths of a toolchain's files are relative to this build folder.
        """
        if self.build.owns(cell):
            return self.get_model(cell.model).by_cell.get(cell)
        part = self.build.find_part(cell)
        record = self._get_toolchain(part).get(cell)
        return _move_paths(record, part.path.relative_to(self.build.path)) if record else None

    def write_to_toolchain(self, record: Record) -> None:
        """Write a record of a cell that could not be exported with its toolchain."""
        part = self._get_toolchain(self.build.find_part(record.cell))
        part.get_model(record.cell.model).write(record)

    def discard_toolchains(self) -> None:
        """Read the records of toolchains again, because another process wrote them."""
        self._toolchains.clear()

    def _get_toolchain(self, part: BuildFolder) -> StoredRecords:
        return self._toolchains.setdefault(part.toolchain, StoredRecords(part))

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
        path = self.build.cell_folder(cell).record(cell)
        return self.get(cell) is None and os.path.lexists(path)

    def find_missing_reason(self, cell: CellId) -> str:
        """Return why a cell has no record."""
        if self.is_damaged(cell):
            return "its record was changed or damaged"
        return "it has not been exported yet"


def _move_paths(record: Record, folder: Path) -> Record:
    """Return a record whose file and log are in `folder` of the build folder."""
    artifact, log = record.artifact, record.log
    if artifact is not None:
        artifact = artifact.model_copy(update={"file": f"{folder.as_posix()}/{artifact.file}"})
    log = f"{folder.as_posix()}/{log}" if log else ""
    return record.model_copy(update={"artifact": artifact, "log": log})
