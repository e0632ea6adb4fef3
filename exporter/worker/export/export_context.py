"""The data of one model at one opset in the worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.jobs.job import OpsetJob
from exporter.manifest import ModelSpec
from exporter.records.record import Route
from exporter.worker.inputs.call import Tensors
from exporter.worker.model.custom_ops import NO_CUSTOM_OPS, CustomOps
from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private.decompositions import Decompositions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportContext:
    """One model at one opset."""

    model: Model
    inputs: Tensors
    """The declared inputs."""
    spec: ModelSpec
    job: OpsetJob
    root: Path
    """The project's root; source lines of the model are relative to it."""
    program: Any | None = None
    """The captured `torch.export.ExportedProgram`; None under TorchScript or without capture."""
    decompositions: Decompositions = field(default_factory=Decompositions)
    custom: CustomOps = NO_CUSTOM_OPS

    @property
    def opset(self) -> int:
        """The opset of the file."""
        return self.job.opset

    @property
    def route(self) -> Route:
        """The exporter and the kind of capture."""
        return self.job.route
