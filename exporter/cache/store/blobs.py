"""Store files by the hash of their content.

Files are hard links if the file system supports them, to save disk space. External data is an
exception: onnx rejects a file with two names. If one build folder owns the store, its external data
stays there, and moves to the store before it would be deleted. If the store is shared, the kernel
copies external data and shares the blocks if the file system can (btrfs, XFS).
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporter.cache.states import hash_source
from exporter.cache.store.store_entry import StoredFile, is_weights
from exporter.core.files import open_regular_file

#: Bytes for one call of the kernel. Ctrl-C is handled between two calls.
_COPY_CHUNK = 1 << 28
#: How often a write is retried if another process removes the folder.
_MAX_ATTEMPTS = 20


class Blobs:
    """The files of a store.

    Args:
        path: The folder of the files.
        scratch: A folder on the same file system, for incomplete files.
        build: The build folder that owns the store, or None if the store is shared.
        is_read_only: True if no file may be moved out of the store.
    """

    def __init__(
        self, path: Path, scratch: Path, build: Path | None = None, *, is_read_only: bool = False
    ) -> None:
        self._path = path
        self._scratch = scratch
        self._build = build
        self._is_read_only = is_read_only

    def has_file(self, file: StoredFile, model: str) -> bool:
        """Return True if a file of this size exists. Its hash is compared by `restore`."""
        return any(_has_size(path, file) for path in self._list_candidates(file, model))

    def find_path(self, model: str, file: StoredFile) -> Path:
        """Return the current path of a file, in the store or in the build folder.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        for path in self._list_candidates(file, model):
            if _has_size(path, file):
                return path
        raise FileNotFoundError(f"{file.path} of {model} is not in the store any more")

    def put(self, source: Path, file: StoredFile) -> None:
        """Store the file, unless it exists or belongs in the build folder.

        Raises:
            OSError: if the store cannot be written.
        """
        if _has_size(self.locate(file.sha256), file) or self._belongs_in_build(file):
            return
        with create_scratch_file(self._scratch) as path:
            link_or_copy(source, path, may_link=not file.is_weights)
            move_into_place(path, self.locate(file.sha256))

    def restore(self, file: StoredFile, model: str, target: Path) -> str:
        """Create the file at `target`.

        Returns:
            Why that is impossible, or "" if the file was restored and its hash is right.
        """
        candidates = [p for p in self._list_candidates(file, model) if _has_size(p, file)]
        if not candidates:
            return "missing"
        source = candidates[0]
        is_in_store = source == self.locate(file.sha256)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_in_store and self._belongs_in_build(file) and not self._is_read_only:
                source.replace(target)
            else:
                link_or_copy(source, target, may_link=not file.is_weights)
        except OSError as error:
            target.unlink(missing_ok=True)
            return f"unreadable ({error.strerror})"
        # Only this process knows the new name: the file cannot change after the hash.
        if hash_source(target) == file.sha256:
            return ""
        target.unlink(missing_ok=True)
        return "damaged"

    def adopt(self, folder: Path) -> None:
        """Move the external data of a model's folder into the store before it is deleted.

        Raises:
            OSError: if the store cannot be written.
        """
        for path in list_folder(folder) if self._build else ():
            # A file with two names is in use elsewhere.
            if is_weights(path.name) and path.is_file() and path.stat().st_nlink == 1:
                move_into_place(path, self.locate(hash_source(path)))

    def _list_candidates(self, file: StoredFile, model: str) -> tuple[Path, ...]:
        stored = self.locate(file.sha256)
        if self._build is None or not file.is_weights:
            return (stored,)
        return (stored, self._build / model / file.path)

    def _belongs_in_build(self, file: StoredFile) -> bool:
        return self._build is not None and file.is_weights

    def locate(self, sha256: str) -> Path:
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
    if not hasattr(os, "copy_file_range"):
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
