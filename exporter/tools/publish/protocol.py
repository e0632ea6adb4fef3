"""What a publication asks of the process that knows onnx, and what that answers.

In: nothing. Out: `PublishRequest` and `ProbeResponse`, JSON in both directions.
"""

from __future__ import annotations

from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device, ModelSpec


class Allowance(FrozenModel):
    """How far an output may be off PyTorch's own: `atol + rtol * |expected|`."""

    output: str
    atol: float
    rtol: float
    outside: float = 0.0
    """The share of elements that may lie beyond."""


class DataSet(FrozenModel):
    """One folder `test_data_set_<n>`."""

    folder: str
    name: str
    """`declared`, `batch=7`, or the name of a case."""
    kind: str
    axes: dict[str, int]


class PublishTarget(FrozenModel):
    """One file that is published."""

    opset: int
    devices: Items[Device]
    """Those on which it was proved."""
    folder: str
    """The folder with its `model.onnx`, absolute."""
    allowed: Items[Allowance] = ()
    """For each output; known once the test data is there."""


class PublishRequest(FrozenModel):
    """Files of one model."""

    step: Literal["arrange", "hold"]
    """`arrange` writes the test data beside each file; `hold` loads and runs each where it is."""
    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    built: str
    """The model's folder in the build folder, absolute."""
    targets: Items[PublishTarget]


class TargetResult(FrozenModel):
    """What became of one target."""

    opset: int
    problems: Items[str] = ()
    """Why it cannot be published; empty where it can."""
    notes: Items[str] = ()
    sets: Items[DataSet] = ()
    allowed: Items[Allowance] = ()


class PublishResponse(FrozenModel):
    """One finding for each target, in their order."""

    findings: Items[TargetResult]
