"""Which files are the project's own, and not those of Python, its packages or this tool.

In: a file and the project's root. Out: its path relative to the root.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path


def find_project_path(file: Path, root: Path) -> str:
    """The file relative to the root; empty where it is not the project's own."""
    path, root = file.resolve(), root.resolve()
    own = Path(__file__).resolve().parents[2]
    foreign = [
        own,
        *(Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib")),
    ]
    if not path.is_relative_to(root) or any(path.is_relative_to(folder) for folder in foreign):
        return ""
    return path.relative_to(root).as_posix()
