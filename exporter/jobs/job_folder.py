"""Split off; to be described."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from exporter.core.atomic_files import write_text
from exporter.core.frozen_model import FrozenModel
from exporter.records.record import (
    CellId,
    Record,
)

#: The names that `format_weights_name` gives.
WEIGHTS_PATTERN = r"weights-[0-9a-f]{16}\.data"


def format_weights_name(sha256: str) -> str:
    """What the external data of this hash is called: what has the same name is the same."""
    return f"weights-{sha256[:16]}.data"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where the files of a job lie."""

    path: Path

    @property
    def job(self) -> Path:
        """The job itself."""
        return self.path / "job.json"

    @property
    def announcement(self) -> Path:
        """The last announcement."""
        return self.path / "at_work.json"

    @property
    def contract(self) -> Path:
        """The contract with the call that `inputs_from` returned; only where it says one."""
        return self.path / "contract.json"

    @property
    def reference(self) -> Path:
        """What PyTorch says."""
        return self.path / "reference.json"

    @property
    def records(self) -> Path:
        """One file per finished cell."""
        return self.path / "records"

    def record(self, cell: CellId) -> Path:
        """The record of `cell`."""
        return self.records / f"{cell.opset}.{cell.device}.json"

    def model(self, opset: int) -> Path:
        """The exported file."""
        return self.path / f"{opset}.onnx"

    def sample(self, index: int) -> Path:
        """Inputs and outputs in ONNX's own test format."""
        return self.path / f"test_data_set_{index}"

    def weight(self, index: int) -> Path:
        """The value of a weight that a file takes as an input."""
        return self.path / "weights" / f"weight_{index}.pb"

    def log(self, opset: int | None) -> Path:
        """What was printed while `opset` was at work; None: what all opsets share."""
        return self.path / "logs" / ("model.log" if opset is None else f"{opset}.log")

    def artifacts(self, opset: int) -> Path:
        """What the exporter of `opset` leaves besides the file, where options ask for it."""
        return self.path / "logs" / str(opset)

    def read_records(self, known: Collection[Path] = ()) -> dict[str, Record]:
        """Every whole record, by the text of its cell.

        A file that was changed since it was written is no record, nor is one in another's place.

        Args:
            known: Files that are not read again.
        """
        found = {}
        for path in sorted(self.records.glob("*.json")):
            if path in known:
                continue
            try:
                record = Record.read(path.read_bytes())
            except (OSError, ValueError):
                continue
            if path == self.record(record.cell):
                found[str(record.cell)] = record
        return found


def write_json(path: Path, value: FrozenModel) -> None:
    """Writes `value` as JSON by fresh file and rename: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, value.to_json())
