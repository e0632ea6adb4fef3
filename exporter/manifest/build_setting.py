"""Find the reason against a folder as `build`: it must not contain files of others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from exporter.core.git import list_tracked_files

#: A file in a folder of a model.
_RESULT = re.compile(r"[^/]+/([0-9]+\.onnx|weights-[0-9a-f]{16}\.\w+)")


def find_build_problem(build: str, root: Path) -> str:
    """Return what is wrong with the value of `build`, or "".

    A link may lead to git's folder or to the project. A folder with files that git tracks has
    sources, unless these files are committed results.
    """
    folder = root / build
    if not folder.exists():
        return ""
    resolved = folder.resolve()
    if ".git" in map(str.lower, resolved.parts) or root.resolve().is_relative_to(resolved):
        return f"leads to {resolved}"
    # With a lock it has been the build folder before, and each run looks for files of others.
    if (folder / ".lock").exists():
        return ""
    other = _find_other(list_tracked_files(folder, {}))
    return f"contains files that git tracks, such as {other}" if other else ""


def _find_other(names: Iterable[str]) -> str:
    """Return the first file that is no result and does not describe the folder, or ""."""
    names = [name for name in names if not _RESULT.fullmatch(name)]
    if "results.json" in names:
        return ""
    models = {name.partition("/")[0] for name in names if re.fullmatch(r"[^/]+/job\.json", name)}
    for name in names:
        is_about = name.rpartition("/")[2].lower().startswith((".", "readme"))
        if not is_about and name.partition("/")[0] not in models:
            return name
    return ""
