"""Split off; to be described."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from exporter.build.folder.build_folder import BuildFolder
from exporter.records.record import CellId, Record


class StoredRecords:
    """The records in a build folder, each model's read once."""

    def __init__(self, build: BuildFolder) -> None:
        self._build = build
        self._models: dict[str, dict[str, Record]] = {}

    @property
    def path(self) -> Path:
        """The build folder, where the files lie that the records speak of."""
        return self._build.path

    def of(self, cell: CellId) -> Record | None:
        """The record of the cell as it was found; None where there is none."""
        return self.get_model(cell.model).get(str(cell))

    def get_model(self, model: str) -> Mapping[str, Record]:
        """The records of the model's cells, by their text."""
        if model not in self._models:
            self._models[model] = self._build.model_folder(model).read_records()
        return self._models[model]

    def is_damaged(self, cell: CellId) -> bool:
        """Whether something lies in the place of the cell's record and is none."""
        place = self._build.model_folder(cell.model).record(cell)
        return self.of(cell) is None and os.path.lexists(place)

    def find_missing_reason(self, cell: CellId) -> str:
        """Why there is no record of the cell."""
        if self.is_damaged(cell):
            return "its record was changed or damaged"
        return "it has not been exported yet"
