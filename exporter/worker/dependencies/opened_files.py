"""Data files of the project that the code of a model opens.

Input: the project's root. Output: the files below it that were opened for reading.

A vocabulary that `__init__` reads is a dependency of the model, like its code. An audit hook
sees each `open` of Python. Readers of safetensors and torch open files without Python, so they
are replaced by functions that raise the same audit event. Other native readers are not seen.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exporter.worker.dependencies.project_files import find_project_path

#: Suffixes of code, which is recorded by its import.
_CODE = frozenset({".py", ".pyc", ".pyi"})
_READ_EVENTS = frozenset({"open", "ctypes.dlopen"})
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Modules and functions that open the file in their first argument without Python.
_NATIVE_READERS = (
    ("safetensors", "safe_open"),
    # These two modules have a reference of their own, which their `load_file` uses.
    ("safetensors.torch", "safe_open"),
    ("safetensors.numpy", "safe_open"),
    ("torch", "from_file"),
    ("torch.export", "load"),
    ("torch.jit", "load"),
)


class OpenedFiles:
    """The data files that are opened during `watch`.

    Args:
        root: The project's root; a file is ignored if it is outside.
        build: The build folder; a file is ignored if it is inside, because it is a result.
    """

    def __init__(self, root: Path, build: Path) -> None:
        self._root = root.resolve()
        self._build = build.resolve()
        self._opened: set[str] = set()
        #: Relative paths, or "" for ignored files; each cell reads them.
        self._paths: dict[str, str] = {}

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record the files that are opened inside."""
        _HOOK.install()
        _HOOK.watchers.append(self)
        try:
            yield
        finally:
            _HOOK.watchers.remove(self)

    def add(self, name: str) -> None:
        """Record a file by its absolute path."""
        self._opened.add(name)

    def list_names(self) -> tuple[str, ...]:
        """Return the existing files, relative to the root and sorted."""
        for name in self._opened - self._paths.keys():
            path = find_project_path(name, self._root)
            is_result = (self._root / path).is_relative_to(self._build)
            self._paths[name] = "" if Path(path).suffix in _CODE or is_result else path
        paths = {path for path in self._paths.values() if path and (self._root / path).is_file()}
        return tuple(sorted(paths))


class _AuditHook:
    """The audit hook of this process, which Python cannot remove."""

    def __init__(self) -> None:
        self.watchers: list[OpenedFiles] = []
        self._is_installed = False

    def install(self) -> None:
        """Install the hook and replace the native readers, once.

        This has to precede the import of the model's code, which may bind a reader by name.
        """
        if self._is_installed:
            return
        self._is_installed = True
        sys.addaudithook(self._handle)
        for name, reader in _NATIVE_READERS:
            with contextlib.suppress(ImportError):
                module = importlib.import_module(name)
                setattr(module, reader, _raise_open_event(getattr(module, reader)))

    def _handle(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _READ_EVENTS or not self.watchers:
            return
        # A library of operators has an event of its own, without mode and flags.
        name, mode, flags = arguments if event == "open" else (*arguments, "r", os.O_RDONLY)
        if isinstance(name, bytes):
            name = os.fsdecode(name)
        is_read = not (isinstance(mode, str) and set(mode) & set("wax+"))
        is_read = is_read and not (isinstance(flags, int) and flags & _WRITE_FLAGS)
        if isinstance(name, str) and is_read:
            # An exception in the hook would abort the `open`.
            with contextlib.suppress(OSError):
                # Resolve it now, because a model may change the working directory.
                path = str(Path.cwd() / name)
                for files in self.watchers:
                    files.add(path)


_HOOK = _AuditHook()


def _raise_open_event(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            sys.audit("open", os.fspath(file), "r", os.O_RDONLY)
        return reader(file, *args, **kwargs)

    return read
