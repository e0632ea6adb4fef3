"""Compare the files of installed packages with the list that their installer wrote.

The list (`RECORD`) has the size and the hash of each file. An installer writes it last, so a file
of the same size that is not newer was not edited. Any other file is hashed, so a reinstallation of
the same release is no edit.
"""

from __future__ import annotations

import base64
import hashlib
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution
from itertools import chain
from pathlib import Path

from exporter.core.files import CELL_LIMIT, hash_file, read_regular_file

#: Files that an installer adds to those of the wheel.
_INSTALLER_FILES = tuple(f".dist-info/{name}" for name in ("INSTALLER", "REQUESTED", "RECORD"))
#: Files that no model reads while it runs. PyTorch has 9,000 of them.
_FOR_COMPILERS = (".h", ".hpp", ".cuh", ".cu", ".cl", ".inl", ".pxd", ".pyi", ".a", ".cmake")
#: The search path has a state of its own; a .pth has the folder of the checkout, and often no hash.
_NOT_COMPARED = (*_FOR_COMPILERS, ".pth")
#: Folders whose files are not compared: models rarely load them, and containers often lack them.
_TESTS = ("/tests/", "/test/")
#: Files of a distribution's metadata, with its folder.
_METADATA = ("", "/METADATA", "/direct_url.json")
#: The size, inode and change time of a file or folder, or all 0 if it does not exist.
_Stamp = tuple[int, int, int]
_MISSING: _Stamp = (0, 0, 0)
#: The stamps of all files and folders from which this process read the states of packages.
_STAMPS: dict[str, _Stamp] = {}


@dataclass(frozen=True, slots=True)
class InstalledFiles:
    """The files of installed packages on which the states of packages depend, at one time."""

    folders: Sequence[str]
    """The folders of packages, in the order in which they are searched."""
    names: Mapping[str, Iterable[str]]
    """The names by folder."""
    digest: str
    """A hash of their sizes, inodes and change times."""

    def are_unchanged(self, folders: Iterable[str]) -> bool:
        """Return True if packages are searched in the same folders and no file changed."""
        if [*folders] != [*self.folders]:
            return False
        paths = (f"{folder}/{name}" for folder, names in self.names.items() for name in names)
        return _digest_stamps(map(_read_stamp, paths)) == self.digest


def describe_installed_files(folders: Iterable[str], before: int) -> InstalledFiles | None:
    """Return the files from which this process read the states of packages, as they were then.

    None if one of them changed after the time `before` in nanoseconds: a further change may have
    the same stamp.
    """
    if any(changed >= before for _, _, changed in _STAMPS.values()):
        return None
    names: dict[str, list[str]] = {}
    for path in _STAMPS:
        folder, _, name = path.rpartition("/")
        names.setdefault(folder, []).append(name)
    stamps = (_STAMPS[f"{folder}/{name}"] for folder, inner in names.items() for name in inner)
    return InstalledFiles([*folders], names, _digest_stamps(stamps))


def have_installed_files_changed() -> bool:
    """Return True if a file changed since this process read the state of its package."""
    return any(_read_stamp(path) != stamp for path, stamp in _STAMPS.items())


def stamp_folders(folders: Iterable[str]) -> None:
    """Remember the stamps of folders in which packages are searched."""
    for folder in folders:
        _remember(folder)


def list_wheel_files(installed: Distribution) -> tuple[str, str]:
    """Return the lines of RECORD, and the first edited file or "".

    The lines are without the files that an installer adds. That of a file that was edited or
    removed since the installation says so.
    """
    lines = (installed.read_text("RECORD") or "").splitlines()
    folder = str(installed.locate_file(""))
    # A list without itself is no installer's, so each file is hashed.
    record = next((_split_line(line)[0] for line in lines if _INSTALLER_FILES[-1] in line), "")
    info = f"{folder}/{record.rpartition('/')[0]}"
    for name in _METADATA if record else ():
        _remember(f"{info}{name}")
    listed = _remember(f"{folder}/{record}")[1] if record else 0
    wheel_lines: list[str] = []
    edited: list[str] = []
    for line in lines:
        name = line.partition(",")[0]
        # Scripts contain the path of the environment's Python. Compiled files are optional.
        is_elsewhere = name.startswith(("..", "/"))
        if is_elsewhere or "__pycache__/" in name or name.endswith(_INSTALLER_FILES):
            continue
        is_compared = not (name.endswith(_NOT_COMPARED) or _is_of_tests(name))
        edit = _find_edit(folder, line, listed) if is_compared else ""
        if edit and _split_line(line)[1]:  # without a hash, the content is the state
            edited.append(_split_line(line)[0])
        wheel_lines.append(f"{line}{edit}" if edit else line)
    return "\n".join(sorted(wheel_lines)), min(edited, default="")


def read_record(path: Path) -> bytes:
    """Return the content of a RECORD, whose stamp is remembered."""
    _remember(str(path))
    return read_regular_file(path, CELL_LIMIT)


@cache
def list_recorded_files(folder_text: str) -> frozenset[str]:
    """Return the files in a folder of packages that are compared with the list of an installer.

    They are relative to the folder.
    """
    records = Path(folder_text).glob("*.dist-info/RECORD")
    texts = (read_record(record).decode(errors="replace") for record in records)
    names = (_split_line(line)[0] for text in texts for line in text.splitlines())
    return frozenset(name for name in names if not _is_of_tests(name))


def _is_of_tests(name: str) -> bool:
    return _TESTS[0] in name or _TESTS[1] in name


def _find_edit(folder: str, line: str, listed: int) -> str:
    """Return how a file differs from its line, or ""; `listed` is the time of the list."""
    name, digest, size = _split_line(line)
    path = f"{folder}/{name}"
    stamp, modified = _remember(path)
    if digest and size == str(stamp[0]) and modified <= listed:
        return ""
    if stamp == _MISSING:
        return " is missing"
    try:
        current = hash_file(Path(path))
    except OSError:
        return " cannot be read"
    return "" if digest == _format_digest(current) else f" is {current}"


def _split_line(line: str) -> tuple[str, str, str]:
    """Return the name, the digest and the size in a line of RECORD."""
    if line.count(",") < 2:
        return line.partition(",")[0], "", ""
    name, digest, size = line.rsplit(",", 2)
    return name.strip('"'), digest, size


def _format_digest(sha256: str) -> str:
    return f"sha256={base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip('=')}"


def _remember(path_text: str) -> tuple[_Stamp, int]:
    """Return the stamp of a path and the time of its content's last change.

    The first stamp of this process is wheel_lines, because it is that of the first state.
    """
    try:
        state = os.stat(path_text)  # noqa: PTH116 - Path objects would double the time
    except OSError:
        stamp, modified = _MISSING, 0
    else:
        stamp, modified = (state.st_size, state.st_ino, state.st_ctime_ns), state.st_mtime_ns
    _STAMPS.setdefault(path_text, stamp)
    return stamp, modified


def _read_stamp(path_text: str) -> _Stamp:
    try:
        state = os.stat(path_text)  # noqa: PTH116 - Path objects would double the time
    except OSError:
        return _MISSING
    return state.st_size, state.st_ino, state.st_ctime_ns


def _digest_stamps(stamps: Iterable[_Stamp]) -> str:
    return hashlib.sha256(array("Q", chain.from_iterable(stamps))).hexdigest()
