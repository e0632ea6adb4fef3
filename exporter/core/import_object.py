"""The object that a reference in a manifest names, by importing what defines it.

In: `file.py:attribute` or `package.module:attribute`. Out: the object. It is the user's own code
that runs here: only workers and what checks a file call this, never the parent.

What is not installed is compiled from its source: Python takes the bytecode that lies beside it for
current where second and size are the same, and a record would then speak of code that did not run.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
from importlib.abc import PathEntryFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any


def load_attribute(source: str, folder: Path) -> Any:
    """The object that `file.py:attr` (relative to `folder`) or `package.module:attr` names."""
    ignore_project_bytecode()
    where, _, attribute = source.rpartition(":")
    # Model files import their neighbours by the folder of the manifest: `models.layers`.
    prepend_to_path(folder)
    found: Any
    if where.endswith(".py"):
        found = _import_file((folder / where).resolve(), where)
    else:
        found = importlib.import_module(where)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


def prepend_to_path(folder: Path) -> None:
    """Has Python look for modules in `folder` before all others."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_file(path: Path, relative: str) -> ModuleType:
    parts = Path(relative).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        module = importlib.import_module(".".join(parts))
        if getattr(module, "__file__", None) and Path(str(module.__file__)).resolve() == path:
            return module
    # A name that cannot be imported, or that belongs to another package: load the file itself.
    name = "exporter_source_" + "_".join(parts)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known  # a second attribute of the same file: it is run once, as by an import
    loader = _Compiling(name, str(path)) if path.suffix in SOURCE_SUFFIXES else None
    specification = importlib.util.spec_from_file_location(name, path, loader=loader)
    if specification is None or specification.loader is None:
        raise ImportError(f"{relative} cannot be imported")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


class _Compiling(SourceFileLoader):
    """Neither reads nor writes bytecode."""

    def path_stats(self, path: str) -> Any:
        """Python leaves bytecode alone where it cannot know how old the source is."""
        raise OSError(f"{path}: its bytecode is not asked for")


def ignore_project_bytecode() -> None:
    """From now on, bytecode is used of installed packages alone."""
    if _finder in sys.path_hooks:
        return
    sys.path_hooks.insert(0, _finder)
    for folder in [folder for folder in sys.path_importer_cache if not _is_installed(folder)]:
        del sys.path_importer_cache[folder]


def _finder(folder: str) -> PathEntryFinder:
    if _is_installed(folder) or not Path(folder or ".").is_dir():
        raise ImportError(f"{folder}: is for another finder")
    return FileFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_Compiling, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _is_installed(folder: str) -> bool:
    path = Path(folder).resolve()
    keys = ("purelib", "platlib", "stdlib", "platstdlib")
    return any(path.is_relative_to(Path(sysconfig.get_path(key)).resolve()) for key in keys)
