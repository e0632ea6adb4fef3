"""Pack folders into archives, to copy them between the client and the hosts.

The whole project travels, because a model can read any file. Folders that other programs create
are packed without their content: they remain in lists of names, and their files are no inputs.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from pydantic import NonNegativeFloat, NonNegativeInt

from exporter.cache.states import read_source_state
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT, PROJECT_LIMIT, make_accessible, open_regular_file
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs import Announcement, Job, JobFolder
from exporter.pipeline.engine import ExitKind

#: Bytes of one message with a part of an archive.
PART_SIZE = 16 << 20


class ClientFacts(FrozenModel):
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

    client_facts: ClientFacts
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


#: Folders of version control, environments and caches.
_TOOL_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".nox", ".tox", ".venv", "node_modules"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"}
)
_BYTECODE = "__pycache__"
#: The file that marks a virtual environment.
_ENVIRONMENT_MARK = "pyvenv.cfg"
_EXECUTABLE, _PLAIN = 0o755, 0o644
#: The time of all files in an archive: zip files have none before 1980.
_TIME = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive file."""

    file: BinaryIO
    size: int
    sha256: str

    @classmethod
    def pack(cls, file: BinaryIO, root: Path, paths: Iterable[Path]) -> Self:
        """Write an archive. Equal content gives equal bytes."""
        with tarfile.open(fileobj=file, mode="w") as tar:
            for path in paths:
                _add(tar, path, path.relative_to(root).as_posix())
        file.flush()
        digest, size = hashlib.sha256(), 0
        for part in _read_parts(file):
            digest.update(part)
            size += len(part)
        return cls(file, size, digest.hexdigest())

    def read_parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position and the content of each part. Several threads can read at once."""
        for number, part in enumerate(_read_parts(self.file)):
            yield number * PART_SIZE, part


def unpack(file: BinaryIO, target: Path, *, has_links: bool = False) -> None:
    """Write the files of an archive into a new folder.

    If links are accepted, the archive must be trusted.

    Raises:
        ValueError: if a path is not inside the folder, or is neither a file nor a folder.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or not name.parts:
                    raise ValueError(f"{member.name}: is not inside the folder")
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    path.mkdir(exist_ok=True)
                elif member.issym() and has_links:
                    path.symlink_to(member.linkname)
                elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
                    with path.open("xb") as output:
                        if source := tar.extractfile(member):
                            shutil.copyfileobj(source, output, 1 << 20)
                    path.chmod(_EXECUTABLE if member.mode & stat.S_IXUSR else _PLAIN)
                else:
                    raise ValueError(f"{member.name}: is neither a file nor a folder")
    except (tarfile.TarError, FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"the archive is damaged: {error}") from error


def list_project(root: Path, skipped: Collection[Path]) -> Iterator[Path]:
    """Yield the paths of a project, sorted in each folder.

    The skipped folders, which are the build folder and the store, have no content there.
    """
    empty = {folder.absolute() for folder in skipped}
    for parent, names, leaves in os.walk(root):
        names[:] = sorted(name for name in names if name != _BYTECODE)
        yield from (Path(parent, name) for name in (*names, *sorted(leaves)))
        folders = [Path(parent, name) for name in names]
        names[:] = [
            path.name
            for path in folders
            if path.name not in _TOOL_FOLDERS
            and path.absolute() not in empty
            and not (path / _ENVIRONMENT_MARK).is_file()
        ]


def read_targets(root: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the links out of the project, with the states of their targets."""
    real_root = root.resolve()
    return {
        path.relative_to(root).as_posix(): read_source_state(path.resolve())
        for path in paths
        if path.is_symlink() and not path.resolve().is_relative_to(real_root)
    }


def list_results(job_folder: JobFolder) -> Iterator[Path]:
    """Yield the regular files of a job. Links, pipes and files that are too large are omitted."""
    if job_folder.path.is_symlink() or not job_folder.path.is_dir():
        return
    make_accessible(job_folder.path)
    for parent, _, names in os.walk(job_folder.path):
        for path in (Path(parent, name) for name in sorted(names)):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode) and state.st_size <= _find_limit(job_folder, path):
                yield path


def move_files(source: Path, target: Path) -> None:
    """Move the files of a job on this machine into its folder, except the job itself."""
    make_accessible(target)
    # Records come last: without them, an interrupted move has no results.
    for path in sorted(
        source.iterdir(), key=lambda path: path.name == JobFolder(source).records.name
    ):
        final = target / path.name
        if path == JobFolder(source).job:
            continue
        if path.is_dir() and final.is_dir() and not final.is_symlink():
            move_files(path, final)
            continue
        if final.is_dir() and not final.is_symlink():
            shutil.rmtree(final)
        path.replace(final)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a path; one that vanished meanwhile, and a special file, is omitted.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be read.
    """
    info = tarfile.TarInfo(name)
    info.mtime = _TIME
    try:
        mode = path.lstat().st_mode
        info.mode = _EXECUTABLE if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else _PLAIN
        if stat.S_ISREG(mode):
            with open_regular_file(path) as file:
                info.size = os.fstat(file.fileno()).st_size
                # A small file, such as a log, may become shorter meanwhile.
                content = file.read(info.size) if info.size <= PART_SIZE else None
                info.size = info.size if content is None else len(content)
                tar.addfile(info, file if content is None else io.BytesIO(content))
        elif stat.S_ISLNK(mode):
            info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
            tar.addfile(info)
        elif stat.S_ISDIR(mode):
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    except FileNotFoundError:
        return
    except OSError as error:
        message = (
            f"{path}: cannot be copied to a host: {error.strerror or error}; change its access"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def _read_parts(file: BinaryIO) -> Iterator[bytes]:
    offset = 0
    while part := os.pread(file.fileno(), PART_SIZE, offset):
        yield part
        offset += len(part)


def _find_limit(job_folder: JobFolder, path: Path) -> int:
    """Return the largest size of a file, as the readers of the client accept it."""
    if path == job_folder.job:  # the client has its own
        return -1
    if path.parent == job_folder.records or path == job_folder.announcement:
        return CELL_LIMIT
    if path in (job_folder.reference, job_folder.contract):
        return PROJECT_LIMIT
    return shutil.disk_usage(job_folder.path).total
