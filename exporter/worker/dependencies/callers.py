"""The code behind a call: the project, an installed package, this tool or Python's imports."""

from __future__ import annotations

import inspect
import os
from enum import Enum
from pathlib import Path

#: The folders of the standard library and of this package.
_STANDARD_LIBRARY = str(Path(os.__file__).parent) + os.sep
#: Functions of Python that list folders to find modules and packages.
_IMPORT_SYSTEM = (
    "<frozen importlib._bootstrap_external>",
    f"{_STANDARD_LIBRARY}importlib{os.sep}",
    f"{_STANDARD_LIBRARY}pkgutil.py",
)
#: It lists folders for imports, and for the versions that this tool reads.
_METADATA = f"{_STANDARD_LIBRARY}importlib{os.sep}metadata{os.sep}"
_OWN_PACKAGE = str(Path(__file__).parents[2]) + os.sep
#: This package's own hooks, which are between the caller and `find_caller`.
_HOOKS = str(Path(__file__).parent) + os.sep
_PACKAGES = f"{os.sep}site-packages{os.sep}"


class Caller(Enum):
    """The owner of the innermost function outside of the standard library."""

    PROJECT = "project"
    PACKAGE = "package"
    IMPORT = "import"
    TOOL = "tool"


def find_caller() -> Caller:
    """Return the owner of the code that called a hook."""
    frame = inspect.currentframe()
    is_metadata = False
    while frame := frame.f_back if frame else None:
        file = frame.f_code.co_filename
        if file.startswith(_METADATA):
            is_metadata = True
            continue
        if file.startswith(_IMPORT_SYSTEM):
            return Caller.IMPORT
        if not file.startswith(("<frozen", _HOOKS)) and (owner := _find_owner(file)) is not None:
            return Caller.IMPORT if is_metadata and owner is not Caller.TOOL else owner
    return Caller.PROJECT


def _find_owner(file: str) -> Caller | None:
    """Return the owner of a file, or None for the standard library."""
    if file.startswith(_OWN_PACKAGE):
        return Caller.TOOL
    if _PACKAGES in file:
        return Caller.PACKAGE
    return None if file.startswith(_STANDARD_LIBRARY) else Caller.PROJECT
