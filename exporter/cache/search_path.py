"""The folders outside of Python in which workers search for modules.

A module that was imported from one folder comes from another one if the path changes, although no
file changed. Folders of installed packages are omitted, because packages have versions.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

#: The name of the search path among the packages of a record.
SEARCH_PATH = "sys.path"
#: The folder with this tool, which the fingerprint contains.
_OWN_FOLDER = str(Path(__file__).resolve().parents[2])
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
#: The path before the code of a model can change it, without the folder of the script.
_FIRST_PATH = tuple(sys.path if sys.flags.safe_path else sys.path[1:])


def read_search_path(root: Path, variable: str) -> str:
    """Return the folders in their order, those of the repository relative to the project.

    So checkouts at other places have the same state.
    """
    folders = dict.fromkeys(map(os.path.realpath, _list_folders(variable)))
    names = (make_portable(folder, root) for folder in folders if folder != _OWN_FOLDER)
    return os.pathsep.join(names) or "no folders"


def make_portable(folder: str, root: Path) -> str:
    """Return a folder without links, from the project's root if its repository contains it."""
    folder, root = os.path.realpath(folder), root.resolve()
    is_own = f"{folder}/".startswith(f"{find_checkout(str(root))}/")
    return os.path.relpath(folder, root) if is_own else folder


def find_checkout(root: str) -> str:
    """Return the folder of the repository of a project, or the parent of the project."""
    folders = (Path(root), *Path(root).parents)
    checkout = next((folder for folder in folders if (folder / ".git").exists()), None)
    return str(Path(root).parent if checkout in (None, folders[0]) else checkout)


def list_package_folders() -> tuple[str, ...]:
    """Return the folders of installed packages, also those of an environment below this one."""
    folders = [
        *site.getsitepackages(),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    ]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    # An environment adds the folder of another one by a `.pth` file with code.
    folders += (each for each in _FIRST_PATH if Path(each).name in _PACKAGE_FOLDERS)
    return tuple(dict.fromkeys(folders))


@cache
def list_metadata_folders() -> tuple[str, ...]:
    """Return the folders with metadata of distributions, those of installed packages first.

    Without this order, a worker would find the metadata that a build left in the project.
    """
    return tuple(sorted(_FIRST_PATH, key=lambda folder: not _is_installed(folder)))


def _list_folders(variable: str) -> Iterator[str]:
    """Yield the folders that Python adds to its path at the start of a worker."""
    yield from filter(None, variable.split(os.pathsep))
    for folder in list_package_folders():
        with suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(folder))
            for name in names:
                if name.endswith(".pth") and not name.startswith("."):
                    lines = _read_pth_file(folder, name)
                    yield from (line for line in lines if not _is_installed(line))


def _read_pth_file(folder: str, name: str) -> Iterator[str]:
    """Yield the folders in a `.pth` file; its lines with code belong to an installed package."""
    text = Path(folder, name).read_text(errors="surrogateescape")
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith(("#", "import ", "import\t")):
            yield str(Path(folder, line))


def _is_installed(folder: str) -> bool:
    """Return True for a folder of Python or of installed packages."""
    standard = (sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))
    folders = (*standard, *list_package_folders())
    path = f"{os.path.realpath(folder)}/"
    return any(path.startswith(f"{os.path.realpath(each)}/") for each in folders)
