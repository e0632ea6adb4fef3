"""Which of the project's files the model was made from.

In: what Python has loaded, and the data files of the manifest. Out: each file under the project's
root with its hash, sorted, and the listing of each folder that holds a module.

Looked at after the work, so that an import inside `forward` counts too. Installed packages are
told by `packages.py`, our own modules by the fingerprint's `tool.exporter`.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from exporter.cache.fingerprint import LISTING, file_digest, read_loaded_state
from exporter.records.record import Source

#: Nanoseconds by which a clock that is kept right may fall behind the other one in a job.
_DRIFT = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """When the work began."""

    changed: int
    """By the kernel's clock, in nanoseconds: `st_ctime_ns` of a file that was written then."""
    offset: int
    """How far the clock on the wall was ahead of the one that only goes on, in nanoseconds."""

    @classmethod
    def of(cls, file: Path) -> JobStart:
        """Of work that begins now, for which `file` was written."""
        return cls(changed=file.stat().st_ctime_ns, offset=_offset())

    def is_before(self, path: Path) -> bool:
        """Whether the file changed since; of a listing nobody asks.

        Where the clock was set back meanwhile, what changed may bear a time before the beginning.
        """
        back = max(0, self.offset - _offset() - _DRIFT)
        try:
            return path.name != LISTING and path.stat().st_ctime_ns > self.changed - back
        except OSError:
            return False  # it is gone: its digest is empty as it is


def digest_external_libraries(root: Path, since: JobStart, paths: Iterable[Path]) -> dict[str, str]:
    """The state of libraries that lie outside the project, by their path from its root."""
    names = {os.path.relpath(path, root.resolve()): path for path in paths}
    return {
        Path(name).as_posix(): "" if since.is_before(path) else read_loaded_state(name, root)
        for name, path in names.items()
    }


def digest_loaded_sources(
    root: Path, since: JobStart, data: Iterable[str] = ()
) -> tuple[Source, ...]:
    """Every module file of the project that is loaded now, and the folders that they are in.

    Args:
        root: The project's root.
        since: When the work began: what changed after it may not be what was loaded, and gets no
            hash.
        data: Files, relative to the root, that the model was loaded from and that are no code.
    """
    root = root.resolve()
    modules = set(_module_files(root))
    listings = {path.parent / LISTING for path in modules}
    files = modules | {root / name for name in data}
    return tuple(
        Source(
            file=path.relative_to(root).as_posix(),
            sha256="" if since.is_before(path) else file_digest(path),
        )
        for path in sorted(files | listings)
    )


def _module_files(root: Path) -> Iterator[Path]:
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and (path := _of_project(name, root)):
            yield path


@cache
def _of_project(name: str, root: Path) -> Path | None:
    """A module's file where the project has it.

    None for what is installed, and where torch gave the module a bare name that is no file. Asked
    for thousands of modules after every cell.
    """
    path = Path(name)
    if not path.is_absolute():
        return None
    path = _real_folder(str(path.parent)) / path.name
    if path.is_symlink():
        path = path.resolve()
    text = str(path)
    if not _is_below(text, root) or any(_is_below(text, folder) for folder in _elsewhere()):
        return None
    return path


@cache
def _real_folder(folder: str) -> Path:
    return Path(folder).resolve()


def _is_below(path: str, folder: Path) -> bool:
    """As `is_relative_to`, which takes many times as long."""
    return path.startswith(f"{str(folder).rstrip(os.sep)}{os.sep}")


@cache
def _elsewhere() -> tuple[Path, ...]:
    """Folders of code that is told otherwise: by the packages, and by our own fingerprint."""
    installed = (Path(sysconfig.get_path(key)) for key in ("purelib", "platlib", "stdlib"))
    return tuple(folder.resolve() for folder in (Path(__file__).parents[2], *installed))


def _offset() -> int:
    # A process that has to wait between the two looks sees less than there is.
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
