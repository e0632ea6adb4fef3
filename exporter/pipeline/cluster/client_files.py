"""Exchange files with the hosts of a cluster."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.folder_access import make_accessible
from exporter.jobs.job_folder import JobFolder
from exporter.pipeline.cluster.host_run import add_part, list_missing, read_part
from exporter.pipeline.cluster.protocol import PART_SIZE, FilePart, HostReply, SentFile


class LostHost(Exception):
    """A host ended before its files were received, or they are damaged."""


class FileSender:
    """Sends the files of the project to hosts that lack them.

    Args:
        client: The client of Dask.
        files: The path or the content of each file, by its digest.
        run: The name of the run.
    """

    def __init__(self, client: Any, files: Mapping[str, Path | bytes], run: str) -> None:
        self._client = client
        self._files = files
        self._run = run

    def send(self, digests: Sequence[str], address: str) -> None:
        """Send files to a host. If it ends meanwhile, another host requests them.

        Raises:
            ExporterError: ENVIRONMENT, if a file changed or the host cannot store it.
        """
        with suppress(OSError):
            # Another job of the host may have requested the same files.
            for digest in self._client.run(list_missing, list(digests), workers=[address])[address]:
                self._send_file(digest, address)

    def _send_file(self, digest: str, address: str) -> None:
        source = self._files[digest]
        for offset, content, is_last in _read_parts(source):
            part = FilePart(
                digest=digest, sender=self._run, offset=offset, content=content, is_last=is_last
            )
            problem = self._client.run(add_part, part, workers=[address])[address]
            if problem:
                name = source if isinstance(source, Path) else "the list of files"
                message = f"{name}: cannot be copied to {address}: {problem}; if the file changed "
                raise ExporterError(ExitCode.ENVIRONMENT, f"{message}meanwhile, export again")


def receive_files(client: Any, address: str, reply: HostReply, target: Path) -> None:
    """Put the files of a job in its folder on this machine.

    Args:
        client: The client of Dask.
        address: A Dask worker of the host.
        reply: The end of the job.
        target: The folder.

    Raises:
        LostHost: if a file is missing or has another digest.
    """
    make_accessible(target)
    # Records come last: without them, an interrupted copy has no results.
    for file in sorted(reply.files, key=lambda each: each.name.startswith("records/")):
        path = _locate_file(target, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        part = path.with_name(f".{path.name}.part")
        part.unlink(missing_ok=True)
        digest = hashlib.sha256()
        with part.open("xb") as output:
            for content in _read_sent_file(client, address, reply, file):
                digest.update(content)
                output.write(content)
        if digest.hexdigest() != file.sha256:
            part.unlink()
            raise LostHost(f"{file.name}: has another digest than the host announced")
        part.replace(path)


def move_files(source: Path, target: Path) -> None:
    """Move the files of a job on this machine into its folder, except the job itself."""
    if source.is_symlink() or not source.is_dir():
        return
    make_accessible(source)
    make_accessible(target)
    for path in sorted(source.iterdir()):
        if path == JobFolder(source).job:
            continue
        final = target / path.name
        if path.is_dir() and not path.is_symlink() and final.is_dir() and not final.is_symlink():
            move_files(path, final)
            continue
        if final.is_dir() and not final.is_symlink():
            shutil.rmtree(final)
        path.replace(final)
    shutil.rmtree(source, ignore_errors=True)


def _locate_file(target: Path, file: SentFile) -> Path:
    """Return the path of a file.

    Raises:
        LostHost: if the path is not inside the folder.
    """
    name = PurePosixPath(file.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise LostHost(f"{file.name}: is not in the folder of the job")
    path = target
    for part in name.parts[:-1]:
        path /= part
        if path.is_symlink():
            raise LostHost(f"{file.name}: is in a linked folder")
    return target.joinpath(*name.parts)


def _read_parts(source: Path | bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the position and the content of each part, and whether it is the last one."""
    if isinstance(source, bytes):
        yield 0, source, True
        return
    offset = 0
    with source.open("rb") as file:
        part = file.read(PART_SIZE)
        while True:
            following = file.read(PART_SIZE) if len(part) == PART_SIZE else b""
            yield offset, part, not following
            if not following:
                return
            offset += len(part)
            part = following


def _read_sent_file(client: Any, address: str, reply: HostReply, file: SentFile) -> Iterator[bytes]:
    if file.content is not None:
        yield file.content
        return
    offset = 0
    while offset < file.size:
        try:
            arguments = (reply.folder, file.name, offset)
            part = client.run(read_part, *arguments, workers=[address])[address]
        except (OSError, ValueError, KeyError) as error:
            raise LostHost(str(error)) from error
        if not part:
            raise LostHost(f"{file.name}: cannot be read on the host")
        yield part
        offset += len(part)
