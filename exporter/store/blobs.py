"""Files by the hash of what is in them, each once.

In: files of a model's folder. Out: the same bytes in another folder, or what is wrong with them.

A file goes in and out under a second name where the file system allows it, so that it takes no room
twice. External data does not: onnx refuses a file with two names. It is copied by the kernel, which
shares the blocks where the file system can (btrfs, XFS).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from exporter.fingerprint import file_digest
from exporter.store.entry import StoredFile

#: Bytes that the kernel copies at once; between two of them, Ctrl-C is heard.
_CHUNK = 1 << 28
#: How often a folder may be removed under our hands.
_PATIENCE = 20


class Blobs:
    """The files of a store.

    Args:
        path: Their folder.
        scratch: A folder of the same file system, for what is not yet whole.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path = path
        self._scratch = scratch

    def has(self, file: StoredFile) -> bool:
        """Whether it seems to be there: it is hashed when it is taken."""
        try:
            found = self.place(file.sha256).lstat()
        except OSError:
            return False
        return found.st_size == file.size

    def put(self, source: Path, file: StoredFile) -> None:
        """Keeps the file, unless it is there.

        Raises:
            OSError: where nothing can be written.
        """
        if self.has(file):
            return
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            fresh = Path(folder) / "blob"
            bring(source, fresh, may_link=not file.is_weights)
            put_in_place(fresh, self.place(file.sha256))

    def take(self, file: StoredFile, target: Path) -> str:
        """Puts the file at `target`; the answer is what is wrong with it, empty if it is whole."""
        place = self.place(file.sha256)
        if place.is_symlink() or not place.is_file():
            return "gone"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            bring(place, target, may_link=not file.is_weights)
        except OSError as error:
            target.unlink(missing_ok=True)
            return f"not to be had ({error.strerror})"
        # What was hashed is what is used: nobody else knows the new name.
        if file_digest(target) == file.sha256:
            return ""
        target.unlink(missing_ok=True)
        return "damaged"

    def place(self, sha256: str) -> Path:
        """Where the file of that hash lies."""
        return self._path / sha256[:2] / sha256

    def all(self) -> Iterator[Path]:
        """Every file that is there."""
        for folder in listed(self._path):
            yield from listed(folder)


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing where there is none (any more), or behind a link."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as found:
            return sorted(Path(each.path) for each in found if not each.is_symlink())
    except OSError:
        return []


def put_in_place(fresh: Path, place: Path) -> None:
    """Renames a whole file into its place.

    Raises:
        OSError: where nothing can be written there.
    """
    for _ in range(_PATIENCE):
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # somebody has just removed the empty folder
            fresh.replace(place)
            return
    fresh.replace(place)


def bring(source: Path, target: Path, *, may_link: bool) -> None:
    """The same bytes under a new name.

    Raises:
        OSError: where `source` cannot be read, or `target` is there or cannot be written.
    """
    if may_link:
        with suppress(OSError):  # another file system, or one without hard links
            target.hardlink_to(source)
            return
    with source.open("rb") as reader, target.open("xb") as writer:
        if not _copied_by_kernel(reader.fileno(), writer.fileno()):
            reader.seek(0)
            writer.truncate(0)
            shutil.copyfileobj(reader, writer, 1 << 20)


def _copied_by_kernel(reader: int, writer: int) -> bool:
    """Whether the kernel copied all of it; some file systems cannot."""
    if not hasattr(os, "copy_file_range"):
        return False
    left = os.fstat(reader).st_size
    try:
        while left > 0:
            count = os.copy_file_range(reader, writer, min(left, _CHUNK))
            if count == 0:
                return False
            left -= count
    except OSError:
        return False
    return True
