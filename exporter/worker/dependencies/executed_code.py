"""The blocks of code that ran in a job, for the modules that the import of this tool loaded.

Python counts the first runs of each code object, or reports the first one. Code that is read or
compiled instead of run counts as a whole: the text of a module if something read it, and all of
its blocks if an interpreter of bytecode such as Dynamo or another process may have used them.
"""

from __future__ import annotations

import ctypes
import inspect
import linecache
import mmap
import re
import sys
from collections.abc import Callable
from importlib.util import decode_source
from types import CodeType
from typing import Any

from exporter.cache.code_blocks import digest_blocks, list_blocks, reads_text
from exporter.core.import_object import LISTENERS

#: The place and first value of a counter in code objects of Python 3.11. The first run changes it.
_COUNTER, _UNUSED = 52, -8
#: The number of blocks whose runs forks can report.
_SIZE = 1 << 20
#: Modules that show lines of a source to people only.
_PRINTERS = re.compile(
    r"[/\\](traceback\.py|warnings\.py|torch[/\\]_(?:dynamo|library)[/\\][^/\\]*)$"
)
_MONITORING: Any = getattr(sys, "monitoring", None)


class ExecutedCode:
    """The modules that this process loaded, and those of their blocks that ran."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, bytes, CodeType]] = []
        self._blocks: list[CodeType] = []
        self._started: set[int] = set()
        self._read: set[str] = set()
        self._readers: set[tuple[str, str]] = set()
        #: A byte for each block that ran, after one for all. The forks of a job share it.
        self._shared = mmap.mmap(-1, 1)
        self._tool = 0

    def watch(self) -> None:
        """Record the modules that are loaded from now on."""
        self._shared = mmap.mmap(-1, _SIZE)
        if _MONITORING is not None:
            self._tool = next(each for each in (4, 3, 5) if not _MONITORING.get_tool(each))
            _MONITORING.use_tool_id(self._tool, "exporter")
            event = _MONITORING.events.PY_START
            _MONITORING.register_callback(self._tool, event, self._start)
        elif not _can_count():
            self.add_all()
        LISTENERS.append(self._add_module)
        linecache.getlines = self._record_lines(linecache.getlines)

    def add_all(self) -> None:
        """Record that something may have used all blocks without running them."""
        self._shared[0] = 1

    def add_reader(self, reader: str, path: str) -> None:
        """Record that a file with code read the bytecode of a module."""
        self._readers.add((reader, path))

    def copy_runs(self) -> bytes:
        """Return what forks reported until now."""
        return self._shared[: len(self._blocks) + 1]

    def restore_runs(self, runs: bytes) -> None:
        """Forget what forks reported after `copy_runs`."""
        self._shared[: len(runs)] = runs

    def count(self) -> int:
        """Return the number of blocks of the loaded modules."""
        return len(self._blocks)

    def share(self, count: int) -> None:
        """Report the blocks that ran in this fork to its parent, which had `count` blocks."""
        if count != len(self._blocks):
            self.add_all()  # the parent may load other modules
        for number, block in enumerate(self._blocks[:count], 1):
            if self._has_run(block, number):
                self._shared[number] = 1

    def list_blocks(self, is_reader: Callable[[str], bool]) -> dict[str, dict[str, str]]:
        """Return the hashes of the blocks that ran by path, without paths whose text counts.

        `is_reader`: Whether a file is of a model, and so may use the bytecode that it reads.
        """
        states: dict[str, dict[str, str]] = {}
        texts = self._read | {path for reader, path in self._readers if is_reader(reader)}
        numbers = {id(block): number for number, block in enumerate(self._blocks, 1)}
        for path, source, code in self._modules:
            hashes, blocks = digest_blocks(source), dict(list_blocks(code))
            if hashes.keys() != blocks.keys():
                texts.add(path)
            states.setdefault(path, {}).update(
                (name, hashes.get(name, ""))
                for name, block in blocks.items()
                if self._shared[0] or self._has_run(block, numbers[id(block)])
            )
        if any(reads_text(each) for ran in states.values() for each in ran.values()):
            return {}
        return {path: ran for path, ran in states.items() if path not in texts}

    def _add_module(self, path: str, source: bytes, code: CodeType) -> None:
        # Otherwise a traceback would read the file.
        lines = decode_source(source).splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
        self._modules.append((path, source, code))
        for _, block in list_blocks(code):
            self._blocks.append(block)
            if _MONITORING is not None:
                _MONITORING.set_local_events(self._tool, block, _MONITORING.events.PY_START)
        if len(self._blocks) >= _SIZE:
            raise MemoryError(f"{path}: the project has more than {_SIZE} functions")

    def _start(self, code: CodeType, _offset: int) -> Any:
        self._started.add(id(code))
        return _MONITORING.DISABLE

    def _has_run(self, block: CodeType, number: int) -> bool:
        if _MONITORING is not None:
            has_started = id(block) in self._started
        else:
            has_started = _read_counter(block) != _UNUSED
        return has_started or bool(self._shared[number])

    def _record_lines(self, get_lines: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def record(filename: str, module_globals: Any = None) -> list[str]:
            frame = inspect.currentframe()
            frame = frame.f_back if frame else None
            is_source = False
            while frame and frame.f_code.co_filename in (linecache.__file__, inspect.__file__):
                is_source |= frame.f_code.co_name == "getsourcelines"
                frame = frame.f_back
            if is_source or frame is None or not _PRINTERS.search(frame.f_code.co_filename):
                self._read.add(filename)
            return get_lines(filename, module_globals)

        return record


def _read_counter(code: CodeType) -> int:
    return ctypes.c_short.from_address(id(code) + _COUNTER).value


def _can_count() -> bool:
    """Return True if this Python has the counter."""

    def run() -> None:
        pass

    first = _read_counter(run.__code__)
    run()
    return (first, _read_counter(run.__code__)) == (_UNUSED, _UNUSED + 1)


#: That of this process.
EXECUTED = ExecutedCode()
