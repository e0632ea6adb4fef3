"""Groups of files that a job opens: the project's, other files of the user, and the system's."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from exporter.cache.states import list_package_folders
from exporter.environments import read_shared_packages

#: Folders of the operating system. A change of the system is not detected.
_SYSTEM = (
    *("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys"),
    "/usr",
)
#: Folders in these for files of users and data that an administrator adds.
_USER = ("/dev/shm", "/run/media", "/run/user", "/usr/local/share")  # noqa: S108 - only read
#: Python's own function: a job replaces `os.readlink` by one that records the calls of its model.
_READ_LINK = os.readlink
#: The number of links in a path after which Linux reports an error.
_LINK_LIMIT = 40


class Group(Enum):
    """The groups of files."""

    PROJECT = "project"
    EXTERNAL = "external"
    """A file of the user outside of the project."""
    FOREIGN = "foreign"
    """A file of Python, an installed package, this tool or the system."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path without links."""

    path: str
    links: tuple[str, ...]
    """The links on the way, as absolute paths."""


@cache
def resolve_path(name: str) -> ResolvedPath:
    """Return the real path of an absolute path and all links that lead to it."""
    pending = name.split("/")[::-1]
    path = ""
    links: list[str] = []
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            path = path.rpartition("/")[0]
            continue
        path = f"{path}/{part}"
        target = _read_link(path)
        # Linux fails after so many links; then no file exists.
        if target and len(links) < _LINK_LIMIT:
            links.append(path)
            pending.extend(target.split("/")[::-1])
            path = "" if target.startswith("/") else path.rpartition("/")[0]
    return ResolvedPath(path or "/", tuple(dict.fromkeys(links)))


@cache
def _read_link(path: str) -> str:
    """Return the text of a link, or "" if the path is none; thousands of files share folders."""
    try:
        return _READ_LINK(path)
    except OSError:
        return ""


@cache
def classify_path(path: str, root: str) -> Group:
    """Return the group of a real path: that of the innermost listed folder.

    The result is cached, because each cell needs it for thousands of modules. Both paths have no
    links.
    """
    groups = _list_groups(root)
    while path and path not in groups:
        path = path.rpartition("/")[0]
    return groups.get(path, Group.EXTERNAL)


@cache
def _list_groups(root: str) -> dict[str, Group]:
    """Return the groups of the folders of the system, the user, Python, this tool and a project."""
    paths = {sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib", "platstdlib")}
    paths |= {sys.prefix, sys.base_prefix, *list_package_folders()}
    if read_shared_packages(Path(sys.prefix)):
        # The folder of created environments may be in the project.
        paths.add(str(Path(sys.prefix).parent))
    paths.add(str(Path.home() / "intel"))  # OpenVINO counts its uses there
    paths.add(str(Path(__file__).parents[2]))
    # pip clones editable installations into this folder of an environment.
    sources = Path(sys.prefix, "src").resolve()
    return {
        **dict.fromkeys(_SYSTEM, Group.FOREIGN),
        **dict.fromkeys(_USER, Group.EXTERNAL),
        **dict.fromkeys((str(Path(path).resolve()) for path in paths), Group.FOREIGN),
        str(sources): Group.PROJECT if sources.is_relative_to(root) else Group.EXTERNAL,
        root: Group.PROJECT,  # an environment may be in the same folder
    }


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

    A relative path is not a file: torch assigns such names to generated modules.

    Returns:
        The path relative to the root for a file of the project, `transformers/models/bert.py` for a
        file of an installed package, and "" for torch, other tools and Python itself.
    """
    if not Path(file).is_absolute():
        return ""
    real, folder = resolve_path(str(file)).path, str(root.resolve())
    if classify_path(real, folder) is Group.PROJECT:
        return os.path.relpath(real, folder)
    for path in (str(file), real):
        for prefix in _list_package_prefixes():
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                return "" if name.partition("/")[0] in _TOOLS else name
    return ""


@cache
def _list_package_prefixes() -> tuple[str, ...]:
    """Return the folders of installed packages, as they are named and resolved."""
    folders = list_package_folders()
    return tuple(dict.fromkeys(f"{each}/" for each in (*folders, *map(os.path.realpath, folders))))
