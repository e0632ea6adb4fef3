"""The entries of a store: records of finished cells, and their files by hash.

An entry has two keys. The lookup key is a hash of the cell and its fingerprint, which are known
before a worker starts. The variant key is a hash of the loaded sources and packages. All variants
of one lookup key are compared with the current files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.cache.fingerprint import THOROUGH, is_known_everywhere
from exporter.cache.states import hash_source, hash_text
from exporter.core.files import CELL_LIMIT, open_regular_file, read_regular_file, walk_files
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.system import IS_LINUX
from exporter.core.text import is_out_of_resources
from exporter.jobs import WEIGHTS_PATTERN, is_weights_name
from exporter.records.record import CellId, Record, Stage, Status

#: The files of an export in a model's folder. An entry with other paths is invalid.
_OPSET_FILES = r"([1-9]\d*)\.onnx|logs/([1-9]\d*)\.log|logs/([1-9]\d*)/(?!\.)[^/\\\0\n]+"
_SHARED_FILES = (
    r"reference\.json|contract\.json|test_data_set_\d+/\w[\w.-]*|weights/weight_\d+\.pb"
    r"|logs/model\.log"
)
_PATH = re.compile(rf"{_OPSET_FILES}|{_SHARED_FILES}|{WEIGHTS_PATTERN}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The file with PyTorch's outputs.
_REFERENCE = "reference.json"


class StoredFile(FrozenModel):
    """A file of a cell."""

    path: str
    """Relative to the model's folder: `18.onnx`."""
    sha256: str
    size: int

    @property
    def is_weights(self) -> bool:
        """True for external data, which onnx rejects if the file has a second name."""
        return is_weights(self.path)


class StoreEntryHeader(FrozenModel):
    """The line of an entry that lists its files."""

    format: Literal[2] = 2
    files: Items[StoredFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """A finished cell in the store."""

    record: Record
    files: tuple[StoredFile, ...]

    @property
    def reference(self) -> str:
        """The hash of PyTorch's outputs, or "" if there are none."""
        hashes = (file.sha256 for file in self.files if file.path == _REFERENCE)
        return next(hashes, "")


class DamagedEntry(Exception):
    """The bytes of an entry are incomplete or inconsistent."""


def is_weights(name: str) -> bool:
    """Return True if a file of this name in a model's folder is external data."""
    return re.fullmatch(WEIGHTS_PATTERN, name) is not None


def make_lookup_key(cell: CellId, parts: Mapping[str, str]) -> str:
    """Return the key from the inputs that are known before a worker starts.

    Thorough and default records have the same key, because a thorough record satisfies both.
    """
    known = sorted(
        (part, value)
        for part, value in parts.items()
        if part != THOROUGH and is_known_everywhere(part)
    )
    return hash_text(json.dumps([str(cell), known]))


def make_variant_key(record: Record) -> str:
    """Return the key from the inputs that the worker loaded."""
    sources = [[source.file, source.state] for source in record.sources]
    states = [sorted(each.items()) for each in (record.packages, record.variables)]
    loaded = [sources, *states, record.thorough]
    return hash_text(json.dumps(loaded))[:32]


def is_storable(record: Record) -> bool:
    """Return True if the same inputs give the same result on every machine.

    A result is not storable if it can depend on time, memory, a device or the network. Errors in
    the model's own code can depend on all of these. All inputs of a storable result are known.
    """
    is_deterministic = record.status in (Status.PASS, Status.FAIL) or (
        record.status is Status.ERROR and record.stage not in (None, Stage.SOURCE)
    )
    return (
        (is_deterministic or record.is_final)
        and bool(record.fingerprint)
        and all(source.state for source in record.sources)
        and not record.untracked
        and not record.flaky
        and not is_out_of_resources(f"{record.message}\n{record.detail}")
    )


def belongs_to(path: str, record: Record) -> bool:
    """Return True if a file belongs to the cell, or to all cells of its model.

    The path is relative to the model's folder.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        return False
    if is_weights(path):
        return record.artifact is not None and path in record.artifact.external_data
    opset = next((group for group in match.groups() if group), None)
    return opset is None or int(opset) == record.cell.opset


def serialize_entry(entry: StoreEntry) -> bytes:
    """Return three parts: a line with the hash of the others, the header, the record."""
    body = StoreEntryHeader(files=entry.files).to_json(indent=None) + entry.record.to_json()
    return f"{hash_text(body)}\n{body}".encode()


def read_entry_file(path: Path) -> bytes:
    """Return the bytes of an entry.

    Raises:
        DamagedEntry: if the file cannot be read.
    """
    try:
        return read_regular_file(path, CELL_LIMIT)
    except OSError:
        raise DamagedEntry from None


def parse_header(data: bytes) -> StoreEntryHeader:
    """Return the header of an entry without its record.

    Raises:
        DamagedEntry: if the bytes are incomplete or changed.
    """
    return _split_entry(data)[0]


def parse_entry(data: bytes) -> StoreEntry:
    """Return the entry.

    Raises:
        DamagedEntry: if the bytes are incomplete or changed, or the record has other files.
    """
    header, text = _split_entry(data)
    try:
        record = Record.read(text.encode())
    except ValueError:
        raise DamagedEntry from None
    entry = StoreEntry(record=record, files=header.files)
    if not (is_storable(record) and _is_consistent(entry)):
        raise DamagedEntry
    return entry


def _split_entry(data: bytes) -> tuple[StoreEntryHeader, str]:
    try:
        sha256, _, body = data.decode().partition("\n")
        header, _, record = body.partition("\n")
        if sha256 != hash_text(body):
            raise DamagedEntry
        return StoreEntryHeader.model_validate_json(header), record
    except ValueError:
        raise DamagedEntry from None


def _is_consistent(entry: StoreEntry) -> bool:
    """Return True if each file is listed once and the artifact has the listed hashes."""
    record, artifact = entry.record, entry.record.artifact
    hashes = {file.path: file.sha256 for file in entry.files}
    if len(hashes) < len(entry.files):
        return False
    for path, sha256 in hashes.items():
        if not (_SHA256.fullmatch(sha256) and belongs_to(path, record)):
            return False
    if artifact is None:
        return record.status is not Status.PASS
    name = f"{record.cell.opset}.onnx"
    return (artifact.file, artifact.sha256) == (
        f"{record.cell.model}/{name}",
        hashes.get(name),
    ) and all(is_weights_name(data, hashes.get(data, "")) for data in artifact.external_data)


#: Bytes for one call of the kernel. Ctrl-C is handled between two calls.
_COPY_CHUNK = 1 << 28
#: How often a write is retried if another process removes the folder.
_MAX_ATTEMPTS = 20


# Files are hard links if the file system supports them, to save disk space. External data is an
# exception, because onnx rejects a file with two names. The kernel copies it, and shares the blocks
# if the file system can (btrfs, XFS).
class Blobs:
    """The files of a store, by their hashes.

    Args:
        path: The folder of the files.
        scratch: A folder on the same file system, for incomplete files.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path = path
        self._scratch = scratch

    def has_file(self, file: StoredFile) -> bool:
        """Return True if a file of this size exists. Its hash is compared by `restore`."""
        return _has_size(self.locate(file.sha256), file)

    def put(self, source: Path, file: StoredFile) -> None:
        """Store the file, unless it exists.

        Raises:
            OSError: if the store cannot be written.
        """
        if not self.has_file(file):
            with create_scratch_file(self._scratch) as path:
                link_or_copy(source, path, may_link=not file.is_weights)
                move_into_place(path, self.locate(file.sha256))

    def restore(self, file: StoredFile, target: Path) -> str:
        """Create the file at `target`.

        Returns:
            Why that is impossible, or "" if the file was restored and its hash is right.
        """
        if not self.has_file(file):
            return "missing"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(self.locate(file.sha256), target, may_link=not file.is_weights)
        except OSError as error:
            target.unlink(missing_ok=True)
            return f"unreadable ({error.strerror})"
        # Only this process knows the new name: the file cannot change after the hash.
        if hash_source(target) == file.sha256:
            return ""
        target.unlink(missing_ok=True)
        return "damaged"

    def locate(self, sha256: str) -> Path:
        """Return the path of a file; it need not exist."""
        return self._path / sha256[:2] / sha256


def _has_size(path: Path, file: StoredFile) -> bool:
    try:
        state = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(state.st_mode) and state.st_size == file.size


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder without symlinks.

    Returns:
        The paths. The list is empty if the folder does not exist or is a symlink.
    """
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(each.path) for each in entries if not each.is_symlink())
    except OSError:
        return []


@contextmanager
def create_scratch_file(folder: Path) -> Iterator[Path]:
    """Yield a unique path, and remove its file at the end if it still exists."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def move_into_place(source: Path, target: Path) -> None:
    """Rename a complete file.

    Raises:
        OSError: if `target` cannot be written.
    """
    for _ in range(_MAX_ATTEMPTS):
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process removed the empty folder
            source.replace(target)
            return
    source.replace(target)


def link_or_copy(source: Path, target: Path, *, may_link: bool) -> None:
    """Create `target` with the content of `source`.

    Raises:
        OSError: if `source` cannot be read, or `target` exists or cannot be written.
    """
    if may_link:
        with suppress(OSError):  # another file system, or one without hard links
            target.hardlink_to(source)
            return
    with open_regular_file(source) as reader, target.open("xb") as writer:
        if not _copy_in_kernel(reader.fileno(), writer.fileno()):
            reader.seek(0)
            writer.truncate(0)
            shutil.copyfileobj(reader, writer, 1 << 20)


def _copy_in_kernel(reader: int, writer: int) -> bool:
    """Copy a file by `copy_file_range`.

    Returns:
        True if the copy is complete. Some file systems do not support the call.
    """
    if not IS_LINUX:
        return False
    remaining = os.fstat(reader).st_size
    try:
        while remaining > 0:
            count = os.copy_file_range(reader, writer, min(remaining, _COPY_CHUNK))
            if count == 0:
                return False
            remaining -= count
    except OSError:
        return False
    return True


#: Other files in the folder of a store are not its own, and stay.
_ENTRY = re.compile(r"entries/[0-9a-f]{2}/[0-9a-f]{62}/[0-9a-f]{32}\.json")
_BLOB = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
#: Incomplete files.
_SCRATCH = re.compile(r"tmp/[0-9a-f]{32}")
#: Seconds after which a file without an entry does not belong to a running export.
GRACE_PERIOD = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The limits of a store."""

    size: int
    """Bytes."""
    age: float
    """Seconds since the last use of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionResult:
    """The removed entries and the freed space."""

    cells: int
    """The number of removed entries, including damaged ones."""
    bytes: int
    """The freed space. A file with a second name elsewhere does not count."""
    remaining: int
    """The bytes of the remaining files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """A file of a local or remote store."""

    name: str
    size: int = 0
    """The bytes that a removal frees."""
    changed: float = 0.0
    """Seconds since 1970, or 0 if the server does not report it: the last use of an entry."""


# The least recently used entry is evicted first. A file is removed with its last entry. A file
# without an entry is removed after a day, because a run may be about to write the entry.
def evict(
    files: Collection[StoreFile],
    read: Callable[[Sequence[str]], Iterable[Sequence[StoredFile] | None]],
    remove: Callable[[Sequence[str]], object],
    limits: StoreLimits,
    *,
    dry_run: bool,
) -> EvictionResult:
    """Remove entries beyond the limits, and unused files: damaged, old, then the least used ones.

    `read` returns the files of each entry, or None if the entry is damaged.

    Raises:
        OSError: if a request fails. An entry that cannot be read may use any file.
    """
    now = time.time()
    entries = [file for file in files if _ENTRY.fullmatch(file.name)]
    contents = dict(zip(entries, read([each.name for each in entries]), strict=True))
    sizes = {each.sha256: each.size for used in contents.values() for each in used or ()}
    hashes = {entry: {each.sha256 for each in used or ()} for entry, used in contents.items()}
    users = Counter(sha256 for each in hashes.values() for sha256 in each)
    remaining = sum(sizes.values())
    evicted = []
    for entry in sorted(entries, key=lambda each: each.changed):
        is_recent = now - entry.changed <= limits.age
        if contents[entry] is not None and is_recent and remaining <= limits.size:
            continue
        evicted.append(entry)
        for sha256 in hashes[entry]:
            users[sha256] -= 1
            remaining -= 0 if users[sha256] else sizes[sha256]

    def is_unused(file: StoreFile) -> bool:
        blob = _BLOB.fullmatch(file.name)
        if blob and blob[1] in users:
            return not users[blob[1]]
        return bool(blob or _SCRATCH.fullmatch(file.name)) and now - file.changed > GRACE_PERIOD

    unused = [file for file in files if is_unused(file)]
    if not dry_run:
        # An entry without its files is a miss. Files without an entry are removed later.
        for group in (evicted, unused):
            remove([file.name for file in group])
    freed = sum(file.size for file in (*evicted, *unused))
    return EvictionResult(cells=len(evicted), bytes=freed, remaining=remaining)


def evict_local(path: Path, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
    """Remove entries and files of a local store beyond the limits.

    Raises:
        OSError: if a file cannot be removed.
    """

    def remove(names: Sequence[str]) -> None:
        for file in (path / name for name in names):
            file.unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                file.parent.rmdir()

    def read(names: Sequence[str]) -> Iterator[Sequence[StoredFile] | None]:
        for name in names:
            try:
                yield parse_header(read_entry_file(path / name)).files
            except DamagedEntry:
                yield None

    return evict(list(list_files(path)), read, remove, limits, dry_run=dry_run)


def list_files(path: Path) -> Iterator[StoreFile]:
    """Yield the files of a local store. Links are not followed."""
    for file, state in walk_files(path):
        name = file.relative_to(path).as_posix()
        is_entry = _ENTRY.fullmatch(name)
        yield StoreFile(
            name=name,
            # A file with a second name elsewhere frees nothing.
            size=state.st_size if state.st_nlink == 1 else 0,
            changed=state.st_mtime if is_entry else state.st_ctime,
        )


def count_entries(path: Path) -> int:
    return sum(_ENTRY.fullmatch(file.name) is not None for file in list_files(path))


def measure_folder(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(state.st_size for _, state in walk_files(path))
