"""The contract between the parent and a worker: JSON in, JSON out, by atomic rename.

In: a `ModelSpec` and the cells to prove. Out: `Job`, `Announcement`, `Reference`, and `JobFolder`,
which says where each file of a job lies.

A worker announces what it is about to do before it does it. When it dies, the cells of the last
announcement are the ones at work: their records do not count, all earlier ones do.
"""

from __future__ import annotations

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device, ModelSpec
from exporter.records.record import (
    CellId,
    Route,
    Stage,
)


class OpsetJob(FrozenModel):
    """One file to make, and the devices to check it on."""

    opset: int
    route: Route
    devices: Items[Device]
    reuse_file: bool = False
    """Whether an earlier run made the very file: only what the checks read has changed."""


class Job(FrozenModel):
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

    def make_fingerprint(self, cell: CellId) -> dict[str, str]:
        """What a record of the cell is valid for."""
        return self.fingerprint | {"device": self.device_digests.get(cell.device, "")}

    def cells(self) -> tuple[CellId, ...]:
        """Every cell of the job, opset by opset."""
        return tuple(cell for opset in self.opsets for cell in self.list_opset_cells(opset))

    def list_opset_cells(self, opset: OpsetJob) -> tuple[CellId, ...]:
        """The cells that share the file of `opset`."""
        return tuple(
            CellId(model=self.spec.id, opset=opset.opset, device=device.name)
            for device in opset.devices
        )


class Announcement(FrozenModel):
    """What the worker is about to do, and which cells it would take down with it."""

    stage: Stage
    cells: Items[CellId]
    log: str
    """Where the worker's output goes meanwhile, relative to the build folder."""
    part: int = 0
    """The part of the model that the worker does; see `Job.part`."""
