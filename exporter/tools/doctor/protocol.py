"""The values of the doctor: requests and responses of its child process, and diagnoses."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device


class ProbeRequest(FrozenModel):
    """A request to import the packages of a worker, or to run a small file on a device."""

    device: Device | None = None
    """None if the packages are imported."""


class ProbeResponse(FrozenModel):
    """The result of a `ProbeRequest`."""

    versions: dict[str, str] = Field(default_factory=dict)
    """The version of each package that can be imported."""
    import_errors: dict[str, str] = Field(default_factory=dict)
    """The error of each package that cannot be imported."""
    is_known_torch: bool = False
    """True if one capture can serve all opsets; see `worker/torch_private`."""
    known_torch: Items[str] = ()
    """The versions of torch with that property, such as `2.13`."""
    providers: Items[str] = ()
    """The execution providers of this ONNX Runtime."""
    provider: str = ""
    """The program that ran the small file with the right result."""
    problem: str = ""
    """The reason if the request failed."""


class Level(StrEnum):
    """The importance of a diagnosis."""

    OK = "ok"
    NOTE = "note"
    """It works, but it is slower than possible, or an optional part is missing."""
    PROBLEM = "problem"
    """An export fails, or stored results are damaged."""


class Diagnosis(FrozenModel):
    """One line of the doctor."""

    level: Level
    subject: str
    """`torch`, `device cuda`, `store`."""
    message: str

    @classmethod
    def ok(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that needs no action."""
        return cls(level=Level.OK, subject=subject, message=message)

    @classmethod
    def note(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that may need an action."""
        return cls(level=Level.NOTE, subject=subject, message=message)

    @classmethod
    def problem(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that needs an action."""
        return cls(level=Level.PROBLEM, subject=subject, message=message)


class Examination(FrozenModel):
    """All diagnoses of one run, as `doctor --json` prints them."""

    findings: Items[Diagnosis]
