"""Tell who lists a folder: this process, a program that it started, or an import of such a Python.

An import lists each folder of the search path once. The kernel shows only that the process opened
the folder. It is a search if the process is a fresh Python that searches the folder, names it by
its absolute path for the first time, and opens a module next. In doubt, it is a listing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from exporter.worker.dependencies.file_access import Access, Lister

#: Options of Python without an argument that do not change the search path.
_HARMLESS_OPTIONS = frozenset("bBdiOqsuv")
#: Options whose argument follows.
_OPTIONS_WITH_VALUE = ("-W", "-X")
#: Variables that change the search path.
_SAFE_PATH, _SEARCH_PATH = b"PYTHONSAFEPATH=", b"PYTHONPATH="
#: A part of the path of all modules of Python, and of those that Python loads without a search.
_LIBRARY, _ENCODINGS = "/lib/python3", "/encodings"


#: The most forks between a process and the program that it belongs to.
_FORKS = 10


@dataclass(slots=True)
class _Program:
    """A process that executed a program."""

    pid: int
    is_python: bool
    listed: set[str] = field(default_factory=set)
    pending: tuple[str, int] | None = None
    """The folder and the flags of its last listing, if that may be a search."""
    words: list[str] | None = None
    folders: frozenset[str] | None = None
    """The folders that a Python searches, without those of installed packages."""

    def has_word(self, beginnings: tuple[str, ...]) -> bool:
        """Return True if a word of its command has one of the beginnings."""
        if self.words is None:
            self.words = _read_words(self.pid)
        return any(word.startswith(beginnings) for word in self.words)

    def searches(self, folder: str) -> bool:
        """Return True for a folder of its search path."""
        if self.folders is None:
            self.folders = frozenset(map(os.path.realpath, _read_search_path(self.pid)))
        return os.path.realpath(folder) in self.folders


class ChildFolders:
    """The folders that the programs list that the parent of this process started.

    `tool_words`: Beginnings of a word in the commands of this tool, which report their files.
    """

    def __init__(self, tool_words: tuple[str, ...]) -> None:
        self._tool_words = tool_words
        self._process = os.getppid()
        self._programs: dict[int, _Program] = {}

    def start_program(self, pid: int, name: str) -> None:
        """Remember that a process executes a program."""
        self._programs[pid] = _Program(pid, Path(name).name.startswith("python"))

    def add_listing(self, pid: int, path: str, flags: int, *, is_absolute: bool) -> Access | None:
        """Return a listing with its lister, or None if the next file of the process decides.

        `is_absolute`: Whether the process named the path so.
        """
        program = self._find_program(pid)
        if program is None or program.has_word(self._tool_words):
            return Access(path, flags)
        may_search = program.pid == pid and program.is_python and is_absolute
        if not may_search or path in program.listed or not program.searches(path):
            return Access(path, flags, Lister.PROGRAM)
        program.listed.add(path)
        program.pending = (path, flags)
        return None

    def decide(self, pid: int, path: str) -> Access | None:
        """Return the listing that waits for the next file of a process, or None."""
        program = self._programs.get(pid)
        if program is None or program.pending is None:
            return None
        folder, flags = program.pending
        program.pending = None
        in_library = _LIBRARY in path and _ENCODINGS not in path
        is_module = path.startswith(f"{folder}/") and path.endswith((".pyc", ".so"))
        return Access(folder, flags, Lister.IMPORT if in_library or is_module else Lister.PROGRAM)

    def give_up(self) -> Iterator[Access]:
        """Yield the listings that still wait."""
        for program in self._programs.values():
            if program.pending is not None:
                yield Access(*program.pending, Lister.PROGRAM)
                program.pending = None

    def _find_program(self, pid: int) -> _Program | None:
        """Return the program of a process, also of a thread or a fork of it."""
        for _ in range(_FORKS):
            if pid in self._programs or pid == self._process:
                break
            pid = _find_parent(pid)
        return self._programs.get(pid)


def _find_parent(pid: int) -> int:
    """Return the process of a thread, or the parent of a process; 0 if there is none."""
    with suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        fields = dict(line.partition(":")[::2] for line in lines.splitlines())
        group = int(fields["Tgid"])
        return int(fields["PPid"]) if group == pid else group
    return 0


def _read_words(pid: int) -> list[str]:
    with suppress(OSError):
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    return []


def _read_search_path(pid: int) -> list[str]:
    """Return the first folders of a Python's search path; none if its options are unknown."""
    with suppress(OSError):
        process = Path(f"/proc/{pid}")
        current = process.joinpath("cwd").readlink()
        variables = process.joinpath("environ").read_bytes().split(b"\0")
        path = next((each for each in variables if each.startswith(_SEARCH_PATH)), b"")
        names = os.fsdecode(path.removeprefix(_SEARCH_PATH)).split(os.pathsep)
        folders = [str(current / name) for name in names if name]
        arguments = iter(_read_words(pid)[1:])
        if any(each.startswith(_SAFE_PATH) for each in variables):
            return folders
        for word in arguments:
            if word in ("-c", "-m"):
                return [str(current), *folders]
            if not word.startswith("-"):
                return [str((current / word).resolve().parent), *folders]
            if word in _OPTIONS_WITH_VALUE:
                next(arguments, None)
            elif not _HARMLESS_OPTIONS.issuperset(word[1:]):
                return []
    return []
