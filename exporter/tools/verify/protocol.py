"""The request of `verify` to the process that imports onnx and the runtimes, and its response."""

from __future__ import annotations

import hashlib

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device, ModelSpec
from exporter.records.record import CheckResult, Status
from exporter.tools.publish.published_folder import Publication


class VerifyRequest(FrozenModel):
    """A request to prove one published folder, or another file with its test data."""

    folder: str
    """Absolute."""
    file: str = ""
    """The file that is proved in place of the published one, absolute; "" if there is none."""
    publication: Publication
    """The content of `exporter.json`."""
    spec: ModelSpec
    """The contract at this opset, `contract.json`."""
    devices: Items[Device]
    root: str
    """The project with the kernels of custom operators, absolute."""
    kernels: ModelSpec | None = None
    """The entry with the kernels. The paths in a published contract are not trusted."""


class DeviceVerdict(FrozenModel):
    """The result of one folder on one device."""

    device: str
    status: Status
    check: str = ""
    """The check that decided the status."""
    message: str = ""
    checks: Items[CheckResult] = ()
    runtime: str = ""
    """The packages that ran the file: `onnxruntime-gpu 1.31.1`."""
    settings: str = ""
    """The digest of the device; see `hash_settings`."""


def hash_settings(device: Device) -> str:
    """Return the digest of the settings that a verdict depends on.

    Environments, and the places of libraries, differ between machines.
    """
    update = {"environment": None, "toolchain": None, "provider_library": "", "name": ""}
    return hashlib.sha256(device.model_copy(update=update).to_json().encode()).hexdigest()


class OpsetRequest(FrozenModel):
    """A request for the opset of an ONNX file."""

    path: str
    """Absolute."""


class OpsetResponse(FrozenModel):
    """The opset of a file, or the reason why it cannot be read."""

    opset: int = 0
    problem: str = ""


class ChildRequest(FrozenModel):
    """One of the two requests."""

    verify: VerifyRequest | None = None
    opset: OpsetRequest | None = None


class VerifyResponse(FrozenModel):
    """The results in the order of the devices."""

    verdicts: Items[DeviceVerdict]
