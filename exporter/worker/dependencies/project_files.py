"""Distinction of the project's files from those of Python, packages and this tool.

Input: a file and the project's root. Output: the path relative to the root.
"""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path


@cache
def find_project_path(file: str | Path, root: Path) -> str:
    """Return the path relative to the root, or "" if the file is not the project's own.

    The result is cached, because each cell needs it for thousands of modules. A relative path is
    not a file: torch assigns such names to generated modules.
    """
    path = Path(file)
    if not path.is_absolute():
        return ""
    path = _resolve(path.parent) / path.name
    if path.is_symlink():
        path = path.resolve()
    root = _resolve(root)
    if not _is_below(path, root) or any(_is_below(path, folder) for folder in _list_foreign()):
        return ""
    return path.relative_to(root).as_posix()


@cache
def _resolve(folder: Path) -> Path:
    return folder.resolve()


@cache
def _list_foreign() -> tuple[Path, ...]:
    """Return the folders of this tool, of installed packages and of Python."""
    installed = (Path(sysconfig.get_path(key)) for key in ("purelib", "platlib", "stdlib"))
    return tuple(folder.resolve() for folder in (Path(__file__).parents[2], *installed))


def _is_below(path: Path, folder: Path) -> bool:
    """Return the result of `is_relative_to`, which is many times slower."""
    return str(path).startswith(f"{str(folder).rstrip(os.sep)}{os.sep}")
