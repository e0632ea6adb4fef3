"""The file of a measured function in the folder of a measurement."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def locate_function(folder: Path, name: str) -> Path:
    """Return the path of a function's file; names such as `__getitem__` are safe."""
    return folder / f"{quote(name, safe='')}.json"
