"""The values that the client and the hosts of a cluster exchange, as JSON."""

from __future__ import annotations

from typing import Self

from pydantic import NonNegativeFloat, NonNegativeInt

from exporter.core.files import CELL_LIMIT
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs.job import Announcement, Job
from exporter.pipeline.engine import ExitKind

#: Bytes of one message with a part of an archive.
PART_SIZE = 16 << 20


class RunContext(FrozenModel):
    """The part of all requests of one run."""

    run: str
    """The name of the run, which no other run has."""
    root: str
    """The folder of the project on the client."""
    name: str
    """The name of the project's folder."""
    build: str
    """The build folder: relative to the root, or absolute on the client."""
    targets: dict[str, str]
    """The links out of the project, with the states of their targets on the client."""
    tools: dict[str, str]
    """The parts of the fingerprint that describe the packages of the client."""
    search_path: str
    """The state of the client's search path for modules."""
    variables: dict[str, str]
    """The variables of the client that travel."""
    patterns: Items[str]
    """The names of variables that the project lists, with wildcards."""
    python_path: Items[str]
    """The folders of `PYTHONPATH`; those of the project are relative to its root."""


class HostRequest(FrozenModel):
    """One job, with the paths of the client."""

    context: RunContext
    key: str
    job: Job
    seconds: float
    """The time limit."""


class HostEvent(FrozenModel):
    """The start of a job on a host, or an announcement of the job."""

    key: str
    host: str
    announcement: Announcement | None = None


class HostReply(FrozenModel):
    """The end of a job, or the reason why the host did not run it."""

    host: str
    """The address of the Dask worker."""
    exit_kind: ExitKind | None = None
    """None if the job did not run."""
    refusal: Items[str] = ()
    """The differences of the host from the client; empty if the archive did not arrive."""
    code: int = 0
    announcement: Announcement | None = None
    seconds: NonNegativeFloat = 0.0
    name: str = ""
    """The archive with the files of the job on the host, or "" if the reply contains all of it."""
    size: NonNegativeInt = 0
    """The bytes of the archive."""
    sha256: str = ""

    def pack(self, first_part: bytes = b"") -> bytes:
        """Return the reply with the first part of its archive."""
        return self.to_json(indent=None).encode() + first_part

    @classmethod
    def unpack(cls, data: object) -> tuple[Self, bytes]:
        """Return a reply and the first part of its archive.

        Raises:
            ValueError: if the data is no reply, or too large.
        """
        if not isinstance(data, bytes) or len(data) > PART_SIZE + CELL_LIMIT:
            raise ValueError("the reply has another format")
        text, _, first_part = data.partition(b"\n")
        return cls.model_validate_json(text), first_part
