"""Whether everything that the last export read is as it was: then this one ends as that one did.

In: what an export without anything to do has read and said. Out: a note in the build folder, and
later what was said, where none of it was touched since; else None, and the export looks closely.

A file counts as untouched by what the kernel says of it: kind, size, inode, and the time of its
last change by the kernel's clock, which no program sets. What changed while the export was reading,
or shortly before, is not noted. Neither pydantic nor a manifest is loaded here: this is what a run
with nothing to do costs.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from exporter.cache.fingerprint import file_digest, loaded_state, tool_parts
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExporterError

#: In the build folder.
_NOTE = "untouched.json"
#: Raised with every change that an older reader would misunderstand.
_FORMAT = 1
#: Nanoseconds within which two changes may bear one time.
_TICK = 2_000_000_000
#: Folders that Python fills by itself.
_NOT_SOURCES = "__pycache__"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoopInputs:
    """Everything that an outcome was made from; paths are relative to the project, or absolute."""

    day: str
    """By which expectations end."""
    files: Mapping[str, Iterable[str]]
    """Names by folder, which may be names with folders again."""
    absent: Iterable[str]
    """Where there was nothing."""
    trees: Iterable[str]
    """Folders with everything in them, also what comes to it."""
    listings: Mapping[str, str]
    """Digest of what Python can import from a folder, by `folder/*.py`."""
    packages: Mapping[str, str]
    """States of installed distributions, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """How an export ended."""

    lines: tuple[tuple[str, str | None], ...]
    """Each with its colour."""
    code: int


def filesystem_now(build: Path) -> int:
    """The time by the clock of the build folder's file system, in nanoseconds.

    0 where there is no such folder or nothing can be made in it.
    """
    path = build / ".now"
    with suppress(OSError):
        path.unlink(missing_ok=True)
        with path.open("x"):
            found = path.lstat().st_ctime_ns
        path.unlink()
        return found
    return 0


def save_snapshot(
    root: Path, build: Path, basis: NoopInputs, said: ExportSummary, since: int
) -> None:
    """Notes how the export ended, unless something may have changed while it was at work.

    Args:
        root: The project's folder.
        build: Its build folder.
        basis: Everything that was read.
        said: What the same again would say.
        since: `filesystem_now` the build folder before anything was read.
    """
    try:
        state, newest = _state(root, basis)
    except OSError:
        return
    if newest < since - _TICK and _holds(root, basis):
        note = {
            "format": _FORMAT,
            "tools": tool_parts(),
            "state": state,
            "basis": asdict(basis),
            "said": asdict(said),
        }
        with suppress(ExporterError):  # the next export looks closely again
            write_text(build / _NOTE, json.dumps(note, separators=(",", ":")) + "\n")


def load_snapshot(root: Path, build: Path, day: str) -> ExportSummary | None:
    """What the last export said, where nothing that it read was touched; else None.

    Args:
        root: The project's folder.
        build: Its build folder.
        day: Today.
    """
    try:
        note = json.loads((build / _NOTE).read_bytes())
        if note["format"] != _FORMAT or note["tools"] != tool_parts():
            return None
        basis = NoopInputs(**note["basis"])
        is_same = (
            basis.day == day and _state(root, basis)[0] == note["state"] and _holds(root, basis)
        )
        lines = tuple((text, colour) for text, colour in note["said"]["lines"])
        return ExportSummary(lines=lines, code=note["said"]["code"]) if is_same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no note, or none of this version


def _holds(root: Path, basis: NoopInputs) -> bool:
    """Whether all is so that no stamp can tell."""
    return (
        not any(os.path.lexists(root / name) for name in basis.absent)
        and all(file_digest(root / name) == known for name, known in basis.listings.items())
        and all(loaded_state(name, root) == known for name, known in basis.packages.items())
    )


def _state(root: Path, basis: NoopInputs) -> tuple[str, int]:
    """A digest of the stamps of all files, and the time of the latest change.

    Raises:
        OSError: where a file is gone or cannot be looked at.
    """
    digest = hashlib.sha256()
    newest = 0
    for look in (_files(root, basis), _trees(root, basis)):
        for said, changed in look:
            digest.update(said.encode())
            newest = max(newest, changed)
    return digest.hexdigest(), newest


def _files(root: Path, basis: NoopInputs) -> Iterator[tuple[str, int]]:
    for folder, names in basis.files.items():
        place = os.path.join(root, folder)  # noqa: PTH118 - a Path for each of 20,000 takes longer than all the rest
        for name in names:
            yield _stamp(f"{place}/{name}")


def _trees(root: Path, basis: NoopInputs) -> Iterator[tuple[str, int]]:
    for tree in basis.trees:
        for place, folders, names in os.walk(root / tree):
            folders[:] = sorted(name for name in folders if name != _NOT_SOURCES)
            for name in (*folders, *sorted(names)):
                said, changed = _stamp(f"{place}/{name}", named=name)
                yield said, changed


def _stamp(path: str, named: str = "") -> tuple[str, int]:
    """What tells that a file was touched, and when it was the last time; a link with its target.

    Of a folder that it is there: what is in it speaks for itself.
    """
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode):
        return f"{named} folder;", 0
    said = f"{named} {found.st_mode} {found.st_size} {found.st_ino} {found.st_ctime_ns};"
    if stat.S_ISLNK(found.st_mode):
        behind = Path(path).stat()
        said += f"{behind.st_mode} {behind.st_size} {behind.st_ino} {behind.st_ctime_ns};"
        return said, max(found.st_ctime_ns, behind.st_ctime_ns)
    return said, found.st_ctime_ns
