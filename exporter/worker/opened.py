"""Which data files of the project a model opens by itself.

In: the project's root. Out: files below it that Python opened to read, by way of an audit hook.

A vocabulary that `__init__` reads is as much a part of the model as its code. What a library maps
into memory on its own (safetensors) is not seen: the manifest's `weights` names such a file.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Code is told by what was imported.
_CODE = frozenset({".py", ".pyc", ".pyi", ".so"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class OpenedFiles:
    """The data files that were opened while `watched`.

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

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Takes note of what is opened inside."""
        _install()
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
        found = set()
        for name in self._seen:
            path = Path(os.path.realpath(name))
            inside = path.is_relative_to(self._root) and path.suffix not in _CODE
            is_made = any(path.is_relative_to(folder) for folder in self._without)
            if inside and not is_made and path.is_file():
                found.add(path.relative_to(self._root).as_posix())
        return tuple(sorted(found))


#: What is taken note of now; a hook cannot be taken away again.
_watching: list[OpenedFiles] = []
_installed: list[bool] = []


def _install() -> None:
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watching:
        return
    name, mode, flags = arguments
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
