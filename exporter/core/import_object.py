"""Import the Python object that a reference in a manifest names.

Modules that are not installed packages are compiled from their source. Python would use an old
bytecode file if the source has the same size and the same second. A record would then describe
other code.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache
from importlib.abc import PathEntryFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from exporter.core.files import QUIET_FLAG

#: Paths without a suffix for which imports searched folders outside of installed packages.
SEARCHED: dict[str, None] = {}
#: A name in `SEARCHED` that represents the names of all modules that Python and packages have. A
#: module in a folder of `sys.path` can replace them, also those that were loaded before.
SHADOWS = "@"
#: The folder with the packages of many projects; it is searched if nothing else has a module.
SOURCE_FOLDER = "src"
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
#: Functions that receive the path, the source and the code of each imported module before it runs.
LISTENERS: list[Callable[[str, bytes, CodeType], None]] = []


def load_attribute(source: str, folder: Path) -> Any:
    """Return the object of `file.py:attr` (relative to `folder`) or `package.module:attr`."""
    ignore_project_bytecode()
    module_name, _, attribute = source.rpartition(":")
    # Model files import other files relative to the manifest's folder: `models.layers`.
    prepend_to_path(folder)
    value: Any
    if module_name.endswith(".py"):
        value = _import_file((folder / module_name).resolve(), module_name)
    else:
        value = importlib.import_module(module_name)
    for name in attribute.split("."):
        value = getattr(value, name)
    return value


def prepend_to_path(folder: Path) -> None:
    """Add `folder` to the front of Python's module search path."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def search_project(root: Path) -> None:
    """Search the modules of a project first, and those of its folder `src`, if any, last."""
    prepend_to_path(root)
    source = root / SOURCE_FOLDER
    if not source.is_dir():
        SEARCHED[str(source)] = None  # modules may be found there when it appears
    elif str(source) not in sys.path:
        sys.path.append(str(source))


def _import_file(path: Path, relative: str) -> ModuleType:
    parts = Path(relative).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        dotted = ".".join(parts)
        try:
            module = importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            # `models` is a module or a package of the project, without the file of the manifest.
            if not f"{dotted}.".startswith(f"{error.name}.") or not path.is_file():
                raise
        else:
            if getattr(module, "__file__", None) and Path(str(module.__file__)).resolve() == path:
                return module
    # The name cannot be imported, or belongs to another package: load the file itself.
    name = "exporter_source_" + "_".join(parts)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded  # like an import, run the file once for all its attributes
    loader = _SourceOnlyLoader(name, str(path)) if path.suffix in SOURCE_SUFFIXES else None
    specification = importlib.util.spec_from_file_location(name, path, loader=loader)
    if specification is None or specification.loader is None:
        raise ImportError(f"{relative} cannot be imported")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


class _SourceOnlyLoader(SourceFileLoader):
    """A loader that neither reads nor writes bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        descriptor = os.open(path, os.O_RDONLY | (QUIET_FLAG if LISTENERS else 0))
        with os.fdopen(descriptor, "rb") as file:
            source = file.read()
        code: CodeType = self.source_to_code(source, path)
        for listener in LISTENERS:
            listener(path, source, code)
        return code


_read_cached_code = SourceFileLoader.get_code


def _read_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
    """Return the code of a module that another one loads by its path."""
    path = loader.get_filename(fullname)
    if path.startswith(tuple(map(str, _list_installed_folders()))) or _is_installed(path):
        return _read_cached_code(loader, fullname)
    return loader.source_to_code(loader.get_data(path), path)


def ignore_project_bytecode() -> None:
    """Make Python use bytecode of installed packages only, from now on."""
    if _make_finder in sys.path_hooks:
        return
    # Python has searched the folders of `PYTHONPATH` for the modules of its start.
    SEARCHED.update((f"{Path(each).absolute()}/{SHADOWS}", None) for each in sys.path)
    # A zip archive may have changed since this process read its table.
    importlib.invalidate_caches()
    _list_installed_folders()  # it may import a module, which would call the new hook
    sys.path_hooks.insert(0, _make_finder)
    # Modules that are loaded by their path have no finder.
    SourceFileLoader.get_code = _read_code  # type: ignore[assignment, method-assign]
    for folder in list(sys.path_importer_cache):
        if not _is_installed(folder):
            sys.path_importer_cache.pop(folder, None)


class RecordingFinder(FileFinder):
    """A finder that records the names for which it searches its folder."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, or return None."""
        _, is_inner, name = fullname.rpartition(".")
        SEARCHED[f"{self.path}/{name}"] = None
        if not is_inner:
            SEARCHED[f"{self.path}/{SHADOWS}"] = None
        return super().find_spec(fullname, target)


def _make_finder(folder: str) -> PathEntryFinder:
    # A folder that does not exist yet is searched, too. A path in an archive has a file above it.
    path = Path(folder or ".").absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if _is_installed(folder) or not existing.is_dir():
        raise ImportError(f"{folder}: is for another finder")
    return RecordingFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_SourceOnlyLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _is_installed(folder: str) -> bool:
    path = Path(folder).resolve()
    return any(path.is_relative_to(each) for each in _list_installed_folders())


@cache
def _list_installed_folders() -> tuple[Path, ...]:
    standard = (sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))
    return tuple({Path(each).resolve() for each in (*standard, *find_package_folders(sys.path))})


def find_package_folders(search_path: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of installed packages, also those of an environment below this one."""
    folders = [
        *site.getsitepackages(),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    ]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    # An environment adds the folder of another one by a `.pth` file with code.
    folders += (each for each in search_path if Path(each).name in _PACKAGE_FOLDERS)
    return tuple(dict.fromkeys(folders))


#: Group of runtimes: the name is the value of `runtime` in a device table.
RUNTIME_GROUP = "exporter.runtimes"
#: Group of commands: each name is a command of the command line.
COMMAND_GROUP = "exporter.commands"


class PluginError(Exception):
    """A plugin cannot be imported or has the wrong type."""


@cache
def find_plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of the group by name, the first on the path for each name."""
    plugins: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=group):
        plugins.setdefault(entry_point.name, entry_point)
    return plugins


def load_plugin(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise  # a plugin may call `sys.exit`
        distribution = entry_point.dist.name if entry_point.dist else "unknown"
        raise PluginError(
            f"plugin {entry_point.name} ({distribution}): cannot import {entry_point.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
