"""Distinction of the project's files from those of Python, packages and this tool."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path

from exporter.cache.search_path import list_package_folders


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


#: Packages that run or export a model, and those that they use: no line of them is of a model.
_TOOLS = frozenset(
    [
        "exporter",
        "functorch",
        "google",
        "jinja2",
        "ml_dtypes",
        "mpmath",
        "networkx",
        "numpy",
        "onnx",
        "onnx_ir",
        "onnxruntime",
        "onnxscript",
        "openvino",
        "packaging",
        "pydantic",
        "pydantic_core",
        "sympy",
        "torch",
        "torchgen",
        "typing_extensions.py",
    ]
)


@cache
def find_model_file(file: str | Path, root: Path) -> str:
    """Return the name of a file that may contain lines of a model.

    Returns:
        The path relative to the root for a file of the project, `transformers/models/bert.py` for a
        file of an installed package, and "" for torch, other tools and Python itself.
    """
    if name := find_project_path(file, root):
        return name
    path = Path(file)
    if not path.is_absolute():
        return ""
    for folder in _list_package_folders():
        for named in (path, _resolve(path.parent) / path.name):
            if _is_below(named, folder):
                relative = named.relative_to(folder)
                return "" if relative.parts[0] in _TOOLS else relative.as_posix()
    return ""


@cache
def _list_package_folders() -> tuple[Path, ...]:
    """Return the folders of installed packages, as they are named and resolved."""
    folders = [Path(folder) for folder in list_package_folders()]
    return tuple(dict.fromkeys((*folders, *(folder.resolve() for folder in folders))))


@cache
def _resolve(folder: Path) -> Path:
    return folder.resolve()


@cache
def _list_foreign() -> tuple[Path, ...]:
    """Return the folders of this tool, of installed packages and of Python."""
    installed = map(Path, (*list_package_folders(), sysconfig.get_path("stdlib")))
    return tuple(folder.resolve() for folder in (Path(__file__).parents[2], *installed))


def _is_below(path: Path, folder: Path) -> bool:
    """Return the result of `is_relative_to`, which is many times slower."""
    return str(path).startswith(f"{str(folder).rstrip(os.sep)}{os.sep}")
