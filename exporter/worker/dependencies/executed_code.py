"""The blocks of code that ran in a job, for the modules that the import of this tool loaded.

Python counts the first runs of each code object, or reports the first one. Code that is read or
interpreted by others counts as a whole.
"""

from __future__ import annotations

import ctypes
import inspect
import linecache
import mmap
import os
import sys
from importlib.util import decode_source
from pathlib import Path
from types import CodeType
from typing import Any

from exporter.cache.code_blocks import (
    TEXT_MARK,
    VERSION,
    digest_blocks,
    list_blocks,
    names_texts,
)
from exporter.core.import_object import LISTENERS

#: The place and first value of a counter in code objects of Python 3.11. The first run changes it.
_COUNTER, _UNUSED = 52, -8
#: The number of blocks whose runs forks can report.
_SIZE = 1 << 20
#: Modules that show lines of a source to people only; this tool does so in messages of red cells.
_PRINTERS = (f"{os.sep}traceback.py", f"{os.sep}warnings.py")
_OWN_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
_MONITORING: Any = getattr(sys, "monitoring", None)


class ExecutedCode:
    """The modules that this process loaded, and those of their blocks that ran."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, bytes, CodeType]] = []
        self.blocks: list[CodeType] = []
        self._started: set[int] = set()
        self._texts: set[str] = set()
        #: A byte for each block that ran, after one for all. The forks of a job share it.
        self._shared = mmap.mmap(-1, 1)
        #: The number of this tool for `sys.monitoring`; None if others have all numbers.
        self._tool: int | None = None

    def watch(self) -> None:
        """Record the modules that are loaded from now on, and forget those of an earlier job."""
        self._modules.clear()
        self.blocks.clear()
        self._started.clear()
        self._texts.clear()
        self._shared = mmap.mmap(-1, _SIZE)
        if self._add_module not in LISTENERS:
            self._install()
        if not self._sees_runs():
            self.add_all()

    def _install(self) -> None:
        """Listen to loaded modules, first runs of their blocks and reads of their lines."""
        LISTENERS.append(self._add_module)
        free = (each for each in (4, 3, 5) if _MONITORING and not _MONITORING.get_tool(each))
        self._tool = next(free, None)
        if self._tool is not None:
            _MONITORING.use_tool_id(self._tool, "exporter")
            _MONITORING.register_callback(self._tool, _MONITORING.events.PY_START, self._start)
        get_lines = linecache.getlines

        def record(filename: str, module_globals: Any = None) -> list[str]:
            frame, reader = inspect.currentframe(), __file__
            while frame and reader in (__file__, linecache.__file__, inspect.__file__):
                reader, frame = frame.f_code.co_filename, frame.f_back
            if not reader.endswith(_PRINTERS) and not reader.startswith(_OWN_PACKAGE):
                self._texts.add(filename)
            return get_lines(filename, module_globals)

        linecache.getlines = record

    def forget_text(self, path_text: str) -> bool:
        """Forget a path whose lines were read; return whether it was recorded."""
        is_known = path_text in self._texts
        self._texts.discard(path_text)
        return is_known

    def add_all(self) -> None:
        """Record that something may have used all blocks without running them."""
        self._shared[0] = 1

    def share(self, count: int) -> None:
        """Report the blocks that ran in this fork to its parent, which had `count` blocks."""
        if count != len(self.blocks):
            self.add_all()  # the parent may load other modules
        for number, block in enumerate(self.blocks[:count], 1):
            self._shared[number] |= self._has_run(block)

    def list_blocks(self) -> dict[str, dict[str, str]]:
        """Return the hashes of the blocks that ran by path, without paths whose text counts."""
        states: dict[str, dict[str, str]] = {}
        texts = set(self._texts)
        is_all = self._shared[0] or "numba" in sys.modules
        numbers = {id(block): number for number, block in enumerate(self.blocks, 1)}
        for path, source, code in self._modules:
            blocks = dict(list_blocks(code))
            try:
                hashes = digest_blocks(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                # Python runs what its parser in Python cannot print: an expression of 1,500 terms.
                if names_texts(source):
                    return {}
                hashes = {}
            if hashes.keys() - {VERSION} != blocks.keys():
                texts.add(path)
            states.setdefault(path, {}).update(
                (name, hashes.get(name, ""))
                for name, block in blocks.items()
                if is_all or self._shared[numbers[id(block)]] or self._has_run(block)
            )
            states[path].update((VERSION, hashes[VERSION]) for _ in hashes.keys() & {VERSION})
        if any(each.endswith(TEXT_MARK) for ran in states.values() for each in ran.values()):
            return {}
        return {path: ran for path, ran in states.items() if path not in texts}

    def _add_module(self, path_text: str, source: bytes, code: CodeType) -> None:
        # Otherwise a traceback would read the file.
        lines = decode_source(source).splitlines(keepends=True)
        linecache.cache[path_text] = (len(source), None, lines, path_text)
        self._modules.append((path_text, source, code))
        for _, block in list_blocks(code):
            self.blocks.append(block)
            self._report_run(block)

    def _report_run(self, block: CodeType) -> None:
        """Let Python report the first run of a block; 3.11 counts it without a request."""
        if self._tool is not None:
            _MONITORING.set_local_events(self._tool, block, _MONITORING.events.PY_START)

    def _sees_runs(self) -> bool:
        """Return True if this Python shows that a known example ran, and that it did not before."""
        block = compile("0", "<example>", "exec")
        self._report_run(block)
        had_run = self._has_run(block)
        exec(block)  # noqa: S102 - the constant above
        is_seen = not had_run and self._has_run(block)
        self._started.discard(id(block))
        return is_seen

    def _start(self, code: CodeType, _offset: int) -> Any:
        self._started.add(id(code))
        return _MONITORING.DISABLE

    def _has_run(self, block: CodeType) -> bool:
        if _MONITORING is not None:
            return id(block) in self._started
        return _read_counter(block) != _UNUSED


def _read_counter(code: CodeType) -> int:
    return ctypes.c_short.from_address(id(code) + _COUNTER).value


#: That of this process.
EXECUTED = ExecutedCode()
