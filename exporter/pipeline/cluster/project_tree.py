"""List the files of a project by their content, to copy the project to other hosts.

All files travel, because a model can read any of them. Folders that other programs create are
copied without their content: they remain in lists of names, and their files are never inputs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from exporter.cache.fingerprint import hash_source, read_source_state
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items

#: Folders of version control, environments and caches.
_TOOL_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".nox", ".tox", ".venv", "node_modules"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"}
)
_BYTECODE = "__pycache__"
#: The file that marks a virtual environment.
_ENVIRONMENT_MARK = "pyvenv.cfg"


class TreeFile(FrozenModel):
    """A file of the project."""

    name: str
    sha256: str
    is_executable: bool = False


class TreeLink(FrozenModel):
    """A symlink of the project."""

    name: str
    target: str
    state: str = ""
    """The state of a target outside of the project, which each host must have, too; else ""."""


class ProjectTree(FrozenModel):
    """The files, links and folders of a project, sorted by name."""

    name: str
    """The name of the project's folder."""
    files: Items[TreeFile]
    links: Items[TreeLink] = ()
    folders: Items[str] = ()


def list_project(root: Path, skipped: Collection[Path] = ()) -> ProjectTree:
    """Return the tree of a project.

    Args:
        root: The folder of the project.
        skipped: Folders without their content: the build folder and the store.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be read.
    """
    empty = {folder.absolute() for folder in skipped}
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    folders: list[str] = []
    for parent, names, leaves in os.walk(root):
        for name in sorted(names):
            path = Path(parent, name)
            if name == _BYTECODE:
                names.remove(name)
            elif path.is_symlink():
                links.append(_describe_link(path, root))
            else:
                folders.append(path.relative_to(root).as_posix())
                if _is_empty(path, empty):
                    names.remove(name)
        for name in leaves:
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                links.append(_describe_link(path, root))
            elif stat.S_ISREG(mode):
                files.append(_describe_file(path, root, mode))
    return ProjectTree(
        name=root.resolve().name or "project",
        files=tuple(sorted(files, key=lambda each: each.name)),
        links=tuple(sorted(links, key=lambda each: each.name)),
        folders=tuple(sorted(folders)),
    )


def _is_empty(path: Path, empty: Collection[Path]) -> bool:
    """Return True if the content of a folder does not travel."""
    return (
        path.name in _TOOL_FOLDERS
        or path.absolute() in empty
        or (path / _ENVIRONMENT_MARK).is_file()
    )


def _describe_file(path: Path, root: Path, mode: int) -> TreeFile:
    digest = hash_source(path)
    if not digest:
        message = f"{path}: cannot be read, so it cannot be copied to a host; change its access"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return TreeFile(
        name=path.relative_to(root).as_posix(),
        sha256=digest,
        is_executable=bool(mode & stat.S_IXUSR),
    )


def _describe_link(path: Path, root: Path) -> TreeLink:
    resolved = path.resolve()
    is_outside = not resolved.is_relative_to(root.resolve())
    return TreeLink(
        name=path.relative_to(root).as_posix(),
        target=str(path.readlink()),
        state=read_source_state(resolved) if is_outside else "",
    )
