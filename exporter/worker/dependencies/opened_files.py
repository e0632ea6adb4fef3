"""Which data files of the project a model opens by itself.

In: the project's root. Out: files below it that were opened to read, by way of an audit hook.

A vocabulary that `__init__` reads is as much a part of the model as its code. Python tells of what
it opens, `native_readers.py` of what safetensors and torch open on their own. What another library
reads without Python is not seen.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporter.worker.dependencies.native_readers import announce_reads

#: Code is told by what was imported.
_CODE = frozenset({".py", ".pyc", ".pyi"})
_READS = frozenset({"open", "ctypes.dlopen"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class OpenedFiles:
    """The data files that were opened while `watch`.

    Args:
        root: The project's root; what lies outside is not the project's.
        build: The build folder, whose files are made and not given.
    """

    def __init__(self, root: Path, build: Path) -> None:
        self._root = root.resolve()
        keys = ("purelib", "platlib", "stdlib")
        self._without = [Path(sysconfig.get_path(key)).resolve() for key in keys]
        self._without.append(build.resolve())
        self._seen: set[str] = set()
        #: Found once: it is asked for after every cell.
        self._places: dict[str, Path | None] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Takes note of what is opened inside."""
        _install()
        announce_reads()
        _watching.append(self)
        try:
            yield
        finally:
            _watching.remove(self)

    def hear(self, name: str) -> None:
        """This file was opened."""
        self._seen.add(name)

    def names(self) -> tuple[str, ...]:
        """The files, relative to the root, sorted; only those that are still there."""
        for name in self._seen - self._places.keys():
            self._places[name] = self._place(name)
        found = {path for path in self._places.values() if path is not None and path.is_file()}
        return tuple(sorted(path.relative_to(self._root).as_posix() for path in found))

    def _place(self, name: str) -> Path | None:
        """Where a file that was just opened lies; None where it is no data of the project."""
        path = Path(os.path.realpath(name))
        if path.suffix in _CODE or not path.is_relative_to(self._root):
            return None
        return None if any(path.is_relative_to(other) for other in self._without) else path


#: What is taken note of now; a hook cannot be taken away again.
_watching: list[OpenedFiles] = []
_installed: list[bool] = []


def _install() -> None:
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _READS or not _watching:
        return
    # A library of operators is loaded, and neither opened nor imported.
    name, mode, flags = arguments if event == "open" else (*arguments, "r", os.O_RDONLY)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    is_read = not (isinstance(mode, str) and set(mode) & set("wax+"))
    is_read = is_read and not (isinstance(flags, int) and flags & _WRITES)
    if isinstance(name, str) and is_read:
        with suppress(OSError):  # what a hook raises ends the opening
            # Where it is now: a model may change the folder that it works in.
            path = str(Path.cwd() / name)
            for files in _watching:
                files.hear(path)
