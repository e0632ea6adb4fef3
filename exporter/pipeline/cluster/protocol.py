"""The values that the client and the hosts of a cluster exchange.

Dask pickles these values. Contents of files travel beside them, in parts of limited size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.pipeline.engine import ExitKind

#: Bytes of one message with the content of a file.
PART_SIZE = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The part of all requests of one run."""

    run: str
    """The name of the run, which no other run has."""
    root: str
    """The folder of the project on the client."""
    build: str
    """The build folder: relative to the root, or absolute on the client."""
    tree: str
    """The digest of the project's tree; "" if the host is the client's machine and uses its
    folder."""
    tools: Mapping[str, str]
    """The parts of the fingerprint that describe the packages of the client."""
    search_path: str
    """The state of the client's search path for modules."""
    variables: Mapping[str, str]
    """The variables of the client that travel."""
    patterns: tuple[str, ...]
    """The names of variables that the project lists, with wildcards."""
    python_path: tuple[str, ...]
    """The folders of `PYTHONPATH`; those of the project are relative to its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """One job."""

    context: RunContext
    key: str
    job: str
    """The job as JSON, with the paths of the client."""
    seconds: float
    """The time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a file that a host lacks."""

    digest: str
    """The SHA-256 of the complete file."""
    sender: str
    """The name of the run that sends the parts."""
    offset: int
    content: bytes
    is_last: bool
    """Whether the file is complete with this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile:
    """A file of a job."""

    name: str
    """The path in the folder of the job."""
    sha256: str
    size: int
    content: bytes | None
    """None if the client reads the file in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReply:
    """The reply of a host to a request: exactly one of the first three fields is set."""

    host: str
    """The name of the host: its machine and its working folder."""
    exit_kind: ExitKind | None = None
    """The end of the job."""
    missing: tuple[str, ...] = ()
    """The digests that the host lacks. The job did not run."""
    refusal: tuple[str, ...] = ()
    """Why the host cannot run the job: the differences from the client."""
    code: int = 0
    announcement: str = ""
    """The last announcement as JSON, or "" if there is none."""
    seconds: float = 0.0
    folder: str = ""
    """The folder of the job on the host."""
    files: tuple[SentFile, ...] = field(default=())


def name_host(address: str, local_directory: str) -> str:
    """Return the name of a host, which all of its Dask workers share.

    Args:
        address: The network address of the machine.
        local_directory: The folder of a Dask worker.
    """
    return f"{address}:{find_host_folder(local_directory)}"


def find_host_folder(local_directory: str) -> Path:
    """Return the working folder of a host, beside the folders of its Dask workers."""
    return Path(local_directory).parent / "exporter"
