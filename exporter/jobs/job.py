"""The contract between the parent and a worker: JSON in, JSON out, by atomic rename.

In: a `ModelSpec` and the cells to prove. Out: `Job`, `Announcement`, `Reference`, and `JobFolder`,
which says where each file of a job lies.

A worker announces what it is about to do before it does it. When it dies, the cells of the last
announcement are the ones at work: their records do not count, all earlier ones do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from exporter.files import write_text
from exporter.manifest import Device, ModelSpec
from exporter.record import CellId, Record, Route, Stage
from exporter.values import Items, Sealed, Value

#: The names that `weights_name` gives.
WEIGHTS = r"weights-[0-9a-f]{16}\.data"


def weights_name(sha256: str) -> str:
    """What the external data of this hash is called: what has the same name is the same."""
    return f"weights-{sha256[:16]}.data"


class OpsetJob(Value):
    """One file to make, and the devices to check it on."""

    opset: int
    route: Route
    devices: Items[Device]
    is_there: bool = False
    """Whether an earlier run made the very file: only what the checks read has changed."""


class Job(Value):
    """One model with its opsets and devices."""

    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    build: str
    """The build folder, absolute; paths in records are relative to it."""
    folder: str
    """The private folder of this job, absolute; renamed to `build/<model>` at the end."""
    opsets: Items[OpsetJob]
    part: int = 0
    """Tells this worker from the others, where several make opsets of the same model."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """Goes into every record; see `fingerprint.py`."""
    device_digests: dict[str, str] = Field(default_factory=dict)
    """By name of the device: goes into the records of its cells."""

    def fingerprint_of(self, cell: CellId) -> dict[str, str]:
        """What a record of the cell is valid for."""
        return self.fingerprint | {"device": self.device_digests.get(cell.device, "")}

    def cells(self) -> tuple[CellId, ...]:
        """Every cell of the job, opset by opset."""
        return tuple(cell for opset in self.opsets for cell in self.cells_of(opset))

    def cells_of(self, opset: OpsetJob) -> tuple[CellId, ...]:
        """The cells that share the file of `opset`."""
        return tuple(
            CellId(model=self.spec.id, opset=opset.opset, device=device.name)
            for device in opset.devices
        )


class Announcement(Value):
    """What the worker is about to do, and which cells it would take down with it."""

    stage: Stage
    cells: Items[CellId]
    log: str
    """Where the worker's output goes meanwhile, relative to the build folder."""
    part: int = 0
    """The part of the model that the worker does; see `Job.part`."""


class Sample(Value):
    """One input set: PyTorch's inputs and outputs lie in `test_data_set_<index>`."""

    index: int
    name: str
    """`declared`, `batch=7`, `batch=7 sequence=11`, `other mask`, or the name of a case."""
    kind: Literal["declared", "axis", "case", "values"]
    axes: dict[str, int]
    """Size of every axis that the inputs have."""
    error: str = ""
    """Why PyTorch itself does not run on it; then there are no outputs."""
    scales: Items[float] = ()
    """Largest finite magnitude of each output in PyTorch; 0 for outputs that are not floats."""
    sha256: str = ""
    """Of the files in its folder; see `checks.samples.sample_digest`."""
    exact: bool = True
    """Whether it was run in float64 too, be it in vain."""
    noise: Items[float | None] = ()
    """Of each output, where it has a noise of its own: inputs of another magnitude."""

    @property
    def says(self) -> tuple[object, ...]:
        """What PyTorch was given and gave back, in short."""
        return (self.kind, self.axes, self.error, self.scales)


class TableParts(Value):
    """A weight that a file may read row by row, as digests of its parts."""

    dtype: str
    """By ONNX's name: `FLOAT`."""
    shape: Items[int]
    parts: Items[str]
    """In the order of the rows; empty for a part of nothing but zeros."""


class NamedWeight(Value):
    """A weight that the manifest names, as PyTorch has it."""

    name: str
    """In the file."""
    source: str
    """In the model: `features.0.weight`."""
    dtype: str
    """By PyTorch's name: `float32`."""
    shape: Items[int]
    sha256: str
    """Of its values, row by row."""
    is_read: bool = True
    """Whether a run of the model reads it; a file may lack what is never read."""


class Weight(Value):
    """A weight of a model whose file takes its weights as inputs."""

    name: str
    """In the file."""
    dtype: str
    shape: Items[int]
    is_read: bool
    """Whether a run of the model reads it."""
    same_as: str = ""
    """The first name of the same tensor, where it has several."""


class Reference(Sealed):
    """What PyTorch says: the samples, and how exact its own float32 is."""

    samples: Items[Sample]
    noise: Items[float | None]
    """For each output, the largest |float32 - float64| over the samples that were run in float64,
    as a share of the output's scale. None where float64 cannot say (the output is no float, or did
    not run)."""
    float64: str = ""
    """Why there is no float64 reference; empty where there is one."""
    unstable: str = ""
    """How PyTorch differs from itself on the declared inputs; empty where it does not."""
    spread: Items[float | None]
    """For each output, how far it moves when inputs get other values: floats as a share of their
    scale, others as a share of the elements; None where PyTorch took no other values."""
    overflow: Items[str] = ()
    """For each output, how far PyTorch's dtype leaves its range where float64 does not; empty
    where it does not, as far as samples were run in float64."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    objects: bool = False
    """Whether the model returns more than tuples, lists and dicts of tensors."""
    tables: Items[TableParts] = ()
    """Every weight of two dimensions: of a table, samples read a few rows."""
    weights: Items[NamedWeight] = ()
    """The weights that the manifest names."""
    fed: Items[Weight] = ()
    """Every weight in the order of the `state_dict`, where a file takes them as inputs; see
    `JobFolder.weight`."""

    def agrees(self, other: Reference) -> bool:
        """Whether both can be of one model: what they both looked at is the same.

        How many samples there are, and how many of them were run in float64, is a matter of how
        thoroughly the model was looked at.
        """
        theirs = {sample.name: sample for sample in other.samples}
        pairs = [(mine, theirs[mine.name]) for mine in self.samples if mine.name in theirs]
        return (
            bool(pairs)
            and all(one.says == another.says for one, another in pairs)
            and (self.tables, self.unstable) == (other.tables, other.unstable)
        )

    @property
    def is_measured_everywhere(self) -> bool:
        """Whether no sample is left that float64 could say more of."""
        asked = all(sample.exact or sample.error for sample in self.samples)
        return asked or all(share is None for share in self.noise)


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


def write_value(path: Path, value: Value) -> None:
    """Writes `value` as JSON by fresh file and rename: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, value.to_json())
