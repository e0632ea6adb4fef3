"""The requests of a publication to the process that imports onnx, and its responses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device, ModelSpec


class Allowance(FrozenModel):
    """The tolerance of one output: `atol + rtol * |expected|` from PyTorch's output."""

    output: str
    atol: float
    rtol: float
    outside: float = 0.0
    """The share of elements that may exceed the tolerance."""
    compared_at: str = ""
    """The positions that are compared, such as `mask = 1`; "" for all."""


class DataSet(FrozenModel):
    """One folder `test_data_set_<n>`."""

    folder: str
    name: str
    """`declared`, `batch=7`, or the name of a case."""
    kind: str
    axes: dict[str, int]


class PublishTarget(FrozenModel):
    """One file to publish."""

    opset: int
    devices: Items[Device]
    """The devices on which it was proved."""
    folder: str
    """The folder with its `model.onnx`, absolute."""
    has_ties: bool = False
    """Whether the file selects other indices of equal values than PyTorch."""


class PublishRequest(FrozenModel):
    """A request for the files of one model."""

    step: Literal["arrange", "verify"]
    """`arrange` writes the test data of each file; `verify` loads and runs each file."""
    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    built: str
    """The model's folder in the build folder, absolute."""
    targets: Items[PublishTarget]


class TargetResult(FrozenModel):
    """The result for one target."""

    opset: int
    problems: Items[str] = ()
    """The reasons against its publication."""
    notes: Items[str] = ()
    sets: Items[DataSet] = ()
    allowed: Items[Allowance] = ()
    sources: dict[str, str] = Field(default_factory=dict)
    """The published file with the content of each file of a sample, by its name in an export."""


class PublishResponse(FrozenModel):
    """The results in the order of the targets."""

    results: Items[TargetResult]
