"""The request of the parent to a worker, and the worker's announcements, as JSON files.

A worker announces each step before it begins. If it dies, the cells of the last announcement were
in progress: their records are dropped, and all earlier records are valid.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device, ModelSpec
from exporter.records.record import CellId, Route, Stage


class OpsetJob(FrozenModel):
    """One file to create, and the devices to check it on."""

    opset: int
    route: Route
    devices: Items[Device]
    reuse_file: bool = False
    """Whether the file exists and is up to date, and only the checks must run again."""


class Job(FrozenModel):
    """One model with its opsets and devices."""

    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    build: str
    """The build folder, absolute; paths in records are relative to it."""
    folder: str
    """The temporary folder of this job, absolute; at the end renamed to `build/<model>`."""
    opsets: Items[OpsetJob]
    part: int = 0
    """The number of this worker, if several workers share the opsets of a model."""
    sandbox: Literal["none", "landlock"] = "none"
    """The restriction of the worker; see `processes/landlock.py`."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """The shared part of all records' fingerprints; see `cache/fingerprint.py`."""
    device_parts: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The parts of the fingerprints for each device, by its name."""

    def make_fingerprint(self, cell: CellId) -> dict[str, str]:
        """Return the fingerprint of a record of the cell."""
        return self.fingerprint | {"device": "", **self.device_parts.get(cell.device, {})}

    def cells(self) -> tuple[CellId, ...]:
        """Return every cell of the job, opset by opset."""
        return tuple(cell for opset in self.opsets for cell in self.list_opset_cells(opset))

    def list_opset_cells(self, opset: OpsetJob) -> tuple[CellId, ...]:
        """Return the cells that share the file of `opset`."""
        return tuple(
            CellId(model=self.spec.id, opset=opset.opset, device=device.name)
            for device in opset.devices
        )


class Announcement(FrozenModel):
    """The next step of a worker, and the cells that fail if it dies."""

    stage: Stage
    cells: Items[CellId]
    log: str
    """The file of the worker's output during this step, relative to the build folder."""
    part: int = 0
    """See `Job.part`."""
