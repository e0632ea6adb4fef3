"""Whether the files of the build folder are still those that were proved.

In: a record with its artifact. Out: an empty text, or what is wrong with its files.

Every file is hashed, unless the file system says that nothing has touched it since it was hashed
last: same size, inode, and time of its last change by the kernel's clock, which no program sets.
A file that changed within the last moments is hashed in any case, since that clock has its ticks.
"""

from __future__ import annotations

import stat
import time
from contextlib import suppress
from pathlib import Path

from pydantic import Field, ValidationError

from exporter.cache.fingerprint import file_digest
from exporter.core.errors import ExporterError
from exporter.core.frozen_model import FrozenModel
from exporter.jobs.job_folder import weights_name, write_value
from exporter.records.record import Artifact

#: Nanoseconds within which two changes may bear one time.
_TICK = 2_000_000_000


class _Stamp(FrozenModel):
    """A file as it was when it was hashed."""

    size: int
    inode: int
    changed: int
    """`st_ctime_ns`."""
    sha256: str


class _Stamps(FrozenModel):
    """What was hashed, by path relative to the build folder."""

    files: dict[str, _Stamp] = Field(default_factory=dict)


class ArtifactVerifier:
    """The files of a build folder, each looked at once.

    Args:
        build: The build folder.
    """

    def __init__(self, build: Path) -> None:
        self._build = build
        self._path = build / "stamps.json"
        self._known = _read(self._path).files
        self._seen: dict[str, _Stamp | None] = {}
        self._fresh: dict[str, _Stamp] = {}

    def problem(self, artifact: Artifact) -> str:
        """What is wrong with the files; empty where they are whole and the same."""
        stamp = self._stamp(artifact.file)
        if stamp is None:
            return f"{artifact.file} is gone"
        if stamp.sha256 != artifact.sha256:
            return f"{artifact.file} is not the file that was proved"
        folder = artifact.file.rpartition("/")[0]
        for name in artifact.external_data:
            beside = self._stamp(f"{folder}/{name}")
            if beside is None:
                return f"{folder}/{name} is gone"
            if name != weights_name(beside.sha256):
                return f"{folder}/{name} is not the file that was proved"
        return ""

    def save(self) -> None:
        """Keeps what was hashed for the next time; that it cannot be kept is no error."""
        if self._fresh:
            with suppress(ExporterError):
                write_value(self._path, _Stamps(files={**self._still_there(), **self._fresh}))

    def _still_there(self) -> dict[str, _Stamp]:
        return {name: stamp for name, stamp in self._known.items() if self._seen.get(name, stamp)}

    def _stamp(self, name: str) -> _Stamp | None:
        """The file as it is now; None where there is none, or a link stands in its place."""
        if name not in self._seen:
            self._seen[name] = self._look(name)
        return self._seen[name]

    def _look(self, name: str) -> _Stamp | None:
        path = self._build / name
        try:
            now = path.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(now.st_mode):
            return None
        known = self._known.get(name)
        if known and (known.size, known.inode, known.changed) == (
            now.st_size,
            now.st_ino,
            now.st_ctime_ns,
        ):
            return known
        stamp = _Stamp(
            size=now.st_size,
            inode=now.st_ino,
            changed=now.st_ctime_ns,
            sha256=file_digest(path),
        )
        if time.time_ns() - now.st_ctime_ns > _TICK:
            self._fresh[name] = stamp
        return stamp


def _read(path: Path) -> _Stamps:
    try:
        return _Stamps.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return _Stamps()  # all is hashed again
