"""The paths of the files of a job, and functions that read and write them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from exporter.core.files import CELL_LIMIT, read_regular_file, write_text
from exporter.core.frozen_model import FrozenModel
from exporter.records.record import CellId, Record, Route

#: Matches the names that `format_weights_name` returns.
WEIGHTS_PATTERN = r"weights-[0-9a-f]{16}\.data"


def format_weights_name(sha256: str) -> str:
    """Return the name of external data with this hash; equal names mean equal content."""
    return f"weights-{sha256[:16]}.data"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of a job, or of a model in the build folder."""

    path: Path

    @property
    def job(self) -> Path:
        """The job itself."""
        return self.path / "job.json"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of a worker, removed after the run."""
        return self.path.with_name(f"{self.path.name}.tmp")

    @property
    def announcement(self) -> Path:
        """The last announcement."""
        return self.path / "at_work.json"

    @property
    def contract(self) -> Path:
        """The contract with the call of `inputs_from`; only if that returns a call."""
        return self.path / "contract.json"

    @property
    def reference(self) -> Path:
        """PyTorch's reference."""
        return self.path / "reference.json"

    @property
    def records(self) -> Path:
        """The folder with one file per finished cell."""
        return self.path / "records"

    def record(self, cell: CellId) -> Path:
        """Return the path of the record of `cell`."""
        return self.records / f"{cell.opset}.{cell.device}.json"

    def model(self, opset: int) -> Path:
        """Return the path of the exported file."""
        return self.path / f"{opset}.onnx"

    def sample(self, index: int) -> Path:
        """Return the folder of a sample in ONNX's test data layout."""
        return self.path / f"test_data_set_{index}"

    def weight(self, index: int) -> Path:
        """Return the path of the value of a weight that is an input of the file."""
        return self.path / "weights" / f"weight_{index}.pb"

    def log(self, opset: int | None) -> Path:
        """Return the path of the log of `opset`, or of all opsets if it is None."""
        return self.path / "logs" / ("model.log" if opset is None else f"{opset}.log")

    def artifacts(self, opset: int) -> Path:
        """Return the folder of the exporter's optional reports for `opset`."""
        return self.path / "logs" / str(opset)

    def read_records(self, skip: Collection[Path] = ()) -> dict[CellId, Record]:
        """Return every valid record by its cell.

        A file that changed since it was written is dropped, and so is the record of another cell.

        Args:
            skip: Files that need not be read.
        """
        records = {}
        for path in sorted(self.records.glob("*.json")):
            if path in skip:
                continue
            try:
                record = Record.read(read_regular_file(path, CELL_LIMIT))
            except (OSError, ValueError):
                continue
            if path == self.record(record.cell):
                records[record.cell] = record
        return records

    def find_route(self, opset: int) -> Route | None:
        """Return the route of the file of an opset, or None if it has no record."""
        records = self.read_records().values()
        return next((record.route for record in records if record.cell.opset == opset), None)


def write_json(path: Path, value: FrozenModel) -> None:
    """Write `value` as JSON atomically, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, value.to_json())
