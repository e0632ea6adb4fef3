"""Files by the hash of what is in them, each once.

In: files of a model's folder. Out: the same bytes in another folder, or what is wrong with them.

A file goes in and out under a second name where the file system allows it, so that it takes no room
twice. External data does not: onnx refuses a file with two names. A store that serves one build
folder leaves it there and takes it over when it would be thrown away. Where others share the store
it is copied by the kernel, which shares the blocks where the file system can (btrfs, XFS).
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporter.cache.fingerprint import file_digest
from exporter.cache.store.entry import StoredFile, is_weights

#: Bytes that the kernel copies at once; between two of them, Ctrl-C is heard.
_CHUNK = 1 << 28
#: How often a folder may be removed under our hands.
_PATIENCE = 20


class Blobs:
    """The files of a store.

    Args:
        path: Their folder.
        scratch: A folder of the same file system, for what is not yet whole.
        build: The one build folder that this serves; None where others may share it.
        is_read_only: Whether nothing is ever moved out.
    """

    def __init__(
        self, path: Path, scratch: Path, build: Path | None = None, *, is_read_only: bool = False
    ) -> None:
        self._path = path
        self._scratch = scratch
        self._build = build
        self._is_read_only = is_read_only

    def has(self, file: StoredFile, model: str) -> bool:
        """Whether it seems to be there, or in the model's folder: it is hashed when it is taken."""
        return any(_is(place, file) for place in self._places(file, model))

    def put(self, source: Path, file: StoredFile) -> None:
        """Keeps the file, unless it is there, or stays where it is until it would go.

        Raises:
            OSError: where nothing can be written.
        """
        if _is(self.place(file.sha256), file) or self._stays(file):
            return
        with scratch_file(self._scratch) as fresh:
            bring(source, fresh, may_link=not file.is_weights)
            put_in_place(fresh, self.place(file.sha256))

    def take(self, file: StoredFile, model: str, target: Path) -> str:
        """Puts the file at `target`; the answer is what is wrong with it, empty if it is whole."""
        places = [place for place in self._places(file, model) if _is(place, file)]
        if not places:
            return "gone"
        is_own = places[0] == self.place(file.sha256)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_own and self._stays(file) and not self._is_read_only:
                places[0].replace(target)
            else:
                bring(places[0], target, may_link=not file.is_weights)
        except OSError as error:
            target.unlink(missing_ok=True)
            return f"not to be had ({error.strerror})"
        # What was hashed is what is used: nobody else knows the new name.
        if file_digest(target) == file.sha256:
            return ""
        target.unlink(missing_ok=True)
        return "damaged"

    def take_over(self, folder: Path) -> None:
        """Moves the external data of a model's folder in, which would be thrown away otherwise.

        Raises:
            OSError: where nothing can be written.
        """
        for path in listed(folder) if self._build else ():
            # One with two names is in use elsewhere, and stays there.
            if is_weights(path.name) and path.is_file() and path.stat().st_nlink == 1:
                put_in_place(path, self.place(file_digest(path)))

    def _places(self, file: StoredFile, model: str) -> tuple[Path, ...]:
        own = self.place(file.sha256)
        if self._build is None or not file.is_weights:
            return (own,)
        return (own, self._build / model / file.path)

    def _stays(self, file: StoredFile) -> bool:
        return self._build is not None and file.is_weights

    def place(self, sha256: str) -> Path:
        """Where the file of that hash lies."""
        return self._path / sha256[:2] / sha256

    def all(self) -> Iterator[Path]:
        """Every file that is there."""
        for folder in listed(self._path):
            yield from listed(folder)


def _is(path: Path, file: StoredFile) -> bool:
    """Whether a file of its size lies there."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == file.size


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing where there is none (any more), or behind a link."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as found:
            return sorted(Path(each.path) for each in found if not each.is_symlink())
    except OSError:
        return []


@contextmanager
def scratch_file(folder: Path) -> Iterator[Path]:
    """A name that nobody else has; what is still there at the end goes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


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
