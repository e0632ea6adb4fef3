"""The verdicts of `exporter verify`, which another machine can store as evidence."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items
from exporter.manifest import Device
from exporter.records.record import CheckResult, Status

#: Python cannot convert every time of the years 1 and 9999 to UTC.
VerdictTime = Annotated[
    AwareDatetime,
    Field(ge=datetime(2020, 1, 1, tzinfo=UTC), lt=datetime(2201, 1, 1, tzinfo=UTC)),
]


class DeviceVerdict(FrozenModel):
    """The result of one folder on one device."""

    device: str
    status: Status
    check: str = ""
    """The check that decided the status."""
    message: str = ""
    checks: Items[CheckResult] = ()
    advice: Items[str] = ()
    """The change of the entry of a finished file."""
    runtime: str = ""
    """The packages that ran the file: `onnxruntime-gpu 1.31.1`."""
    session: str = ""
    """The settings of its session that a plain one lacks; see `Device.settings`."""
    settings: str = ""
    """The digest of the device; see `hash_settings`."""


def hash_settings(device: Device) -> str:
    """Return the digest of the settings that a verdict depends on.

    Environments, and the places of libraries, differ between machines. Only values that are set
    count, so measurements remain valid if a version has another key of devices.
    """
    excluded = {"environment", "job_environment", "provider_library", "name"}
    values = device.model_dump(mode="json", exclude=excluded, exclude_defaults=True)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class FolderVerdict(FrozenModel):
    """The result of one published folder on one device."""

    path: str
    model: str
    """Empty if the folder cannot be read."""
    opset: int | None
    verdict: DeviceVerdict
    sha256: str = ""
    """The SHA-256 of the file that was proved."""


class VerifyReport(ChecksummedModel):
    """The output of `--json`."""

    time: VerdictTime
    machine: Annotated[str, Field(max_length=1000)]
    """The system and the processors, without the name of the host."""
    verdicts: Items[FolderVerdict]
