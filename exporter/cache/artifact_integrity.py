"""Check that the files of the build folder, and large sources, have their recorded hashes.

A file is hashed unless its size, inode and change time equal those at its last hash. No program can
set the change time (`st_ctime`). A file that changed less than two seconds ago is always hashed,
because two changes can have the same timestamp.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from exporter.cache.code_blocks import BLOCKS
from exporter.cache.states import hash_source, read_source_state, split_listing
from exporter.core.errors import ExporterError
from exporter.core.files import PROJECT_LIMIT, TENSOR_LIMIT
from exporter.core.frozen_model import FrozenModel
from exporter.jobs import JobFolder, Reference, is_weights_name, write_json
from exporter.records.record import Artifact, Record

#: Nanoseconds within which two changes can have the same timestamp.
_CLOCK_RESOLUTION = 2_000_000_000
#: Bytes of a file that is hashed in any case. One that is larger than the artifact may be huge.
_CHEAP_SIZE = 1 << 24
#: Bytes from which a source has a stamp: reading the stamps takes longer than hashing a small file.
_LARGE_SIZE = 1 << 22


#: The file of `SourceStamps` in the build folder.
SOURCE_STAMPS = "source-stamps.json"


class _FileStamp(FrozenModel):
    """The state of a file when it was hashed."""

    size: int
    inode: int
    changed: int
    """`st_ctime_ns`."""
    sha256: str

    def describes(self, state: os.stat_result) -> bool:
        """Return whether the file is unchanged since its hash, by its current state."""
        current = (state.st_size, state.st_ino, state.st_ctime_ns)
        return (self.size, self.inode, self.changed) == current


class _FileStamps(FrozenModel):
    """The content of `stamps.json`: stamps by path relative to the build folder."""

    files: dict[str, _FileStamp] = Field(default_factory=dict)
    samples: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The hash of each sample's folder, by the hash of the reference."""


class ArtifactVerifier:
    """Compares the files of a build folder with records. Each file is read once."""

    def __init__(self, build_path: Path) -> None:
        self._build = build_path
        self._path = build_path / "stamps.json"
        # Without stamps, every file is hashed again.
        stamps = _FileStamps.find(self._path, PROJECT_LIMIT) or _FileStamps()
        self._stored = stamps.files
        self._samples = stamps.samples
        self._reference_problems: dict[str, str] = {}
        self._current: dict[str, _FileStamp | None] = {}
        self._changed: dict[str, _FileStamp] = {}

    def find_problem(self, artifact: Artifact) -> str:
        """Return why the files differ from the artifact, or "" if they are equal."""
        limit = max(artifact.bytes, _CHEAP_SIZE)
        stamp = self._get_stamp(artifact.file, limit)
        if stamp is None:
            return f"{artifact.file} is missing"
        if stamp.sha256 != artifact.sha256:
            return f"{artifact.file} is not the file that was proved"
        folder = artifact.file.rpartition("/")[0]
        for name in artifact.external_data:
            weights = self._get_stamp(f"{folder}/{name}", limit)
            if weights is None:
                return f"{folder}/{name} is missing"
            if not is_weights_name(name, weights.sha256):
                return f"{folder}/{name} is not the file that was proved"
        return ""

    def find_record_problem(self, record: Record) -> str:
        """Return why the files or the samples of a record are damaged, or "" if they are not."""
        if record.artifact is None:
            return ""
        folder = record.artifact.file.rpartition("/")[0]
        return self.find_problem(record.artifact) or self.find_reference_problem(folder)

    def find_reference_problem(self, folder_name: str) -> str:
        """Return why the reference or a sample of a model differs from the written one, or ""."""
        if folder_name not in self._reference_problems:
            self._reference_problems[folder_name] = self._examine_reference(folder_name)
        return self._reference_problems[folder_name]

    def _examine_reference(self, folder_name: str) -> str:
        name = f"{folder_name}/reference.json"
        stamp = self._get_stamp(name, PROJECT_LIMIT)
        if stamp is None or not stamp.sha256:
            return f"{name} is missing or damaged"
        if stamp.sha256 not in self._samples:
            reference = Reference.find(self._build / name, PROJECT_LIMIT)
            if reference is None:
                return f"{name} is damaged"
            job = JobFolder(self._build / folder_name)
            self._samples[stamp.sha256] = {
                job.sample(sample.index).name: sample.sha256 for sample in reference.samples
            }
        for sample, digest in self._samples[stamp.sha256].items():
            if digest and self._hash_sample(f"{folder_name}/{sample}") != digest:
                return f"{folder_name}/{sample} is not the written sample"
        return ""

    def _hash_sample(self, folder_name: str) -> str:
        """Return the digest as `hash_sample` in `checks`, or "" if the folder cannot be read."""
        digest = hashlib.sha256()
        try:
            names = sorted(os.listdir(f"{self._build}/{folder_name}"))  # noqa: PTH208 - names only
        except OSError:
            return ""
        for name in names:
            stamp = self._get_stamp(f"{folder_name}/{name}", TENSOR_LIMIT)
            if stamp is None or not stamp.sha256:
                return ""
            digest.update(name.encode() + b"\0")
            digest.update(bytes.fromhex(stamp.sha256))
        return digest.hexdigest()

    def save(self) -> None:
        """Write the hashes for the next run. An error is ignored: it only costs time."""
        if self._changed:
            remaining = {
                n: stamp for n, stamp in self._stored.items() if self._current.get(n, stamp)
            }
            files = {**remaining, **self._changed}
            used = {stamp.sha256 for stamp in files.values()}
            samples = {key: value for key, value in self._samples.items() if key in used}
            with suppress(ExporterError):
                write_json(self._path, _FileStamps(files=files, samples=samples))

    def _get_stamp(self, name: str, limit: int) -> _FileStamp | None:
        if name not in self._current:
            self._current[name] = self._read_stamp(name, limit)
        return self._current[name]

    def _read_stamp(self, name: str, limit: int) -> _FileStamp | None:
        """Return the current state of a file, or None if it is missing or a symlink.

        The hash of a file with more bytes than the limit is "", because it is not the proved one.
        """
        path = f"{self._build}/{name}"  # a Path for each file of 20,000 cells takes a second
        now = time.time_ns()  # a file can change while it is hashed, which takes minutes
        try:
            state = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISREG(state.st_mode):
            return None
        stored = self._stored.get(name)
        if stored and stored.describes(state):
            return stored
        stamp = _FileStamp(
            size=state.st_size,
            inode=state.st_ino,
            changed=state.st_ctime_ns,
            sha256=hash_source(Path(path)) if state.st_size <= limit else "",
        )
        if stamp.sha256 and now - state.st_ctime_ns > _CLOCK_RESOLUTION:
            self._changed[name] = stamp
        return stamp


class SourceStamps:
    """The hashes of large files that models read, such as weights, by path in a record."""

    def __init__(self, build_path: Path) -> None:
        self._path = build_path / SOURCE_STAMPS
        self._stored: dict[str, _FileStamp] | None = None

    def read_state(self, path: Path, name: str, before: str) -> str:
        """Return the state as `read_source_state`, without reading an unchanged large file."""
        now = time.time_ns()
        try:
            state = path.lstat()
        except OSError:
            return read_source_state(path, before)
        is_large = stat.S_ISREG(state.st_mode) and state.st_size >= _LARGE_SIZE
        if not is_large or before.startswith(BLOCKS) or split_listing(str(path)):
            return read_source_state(path, before)
        if self._stored is None:
            self._stored = self._read()
        stored = self._stored.get(name)
        if stored and stored.describes(state):
            return stored.sha256
        sha256 = hash_source(path)
        if sha256 and now - state.st_ctime_ns > _CLOCK_RESOLUTION and self._path.parent.is_dir():
            self._stored = self._read() | {
                name: _FileStamp(
                    size=state.st_size,
                    inode=state.st_ino,
                    changed=state.st_ctime_ns,
                    sha256=sha256,
                )
            }
            with suppress(ExporterError):  # without stamps, the next command hashes it again
                write_json(self._path, _FileStamps(files=self._stored))
        return sha256

    def _read(self) -> dict[str, _FileStamp]:
        stamps = _FileStamps.find(self._path, PROJECT_LIMIT)
        return dict(stamps.files) if stamps else {}
