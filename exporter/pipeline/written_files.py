"""Tell the files that exports wrote from all others, so that no file of the user is removed.

Each folder of a model has a list of its content, which is written before the folder gets its place
in the build folder. A file that appears later is not in the list.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    CELL_LIMIT,
    PROJECT_LIMIT,
    describe_owner,
    make_accessible,
    open_regular_file,
    read_regular_file,
    remove_folder,
)
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs import write_json

#: In the folder of a model.
_LIST = "written.json"
#: The content of a folder of release 1.0.0, which wrote no list.
_RESULT = re.compile(
    r"(job|at_work|contract|reference)\.json|[1-9][0-9]*\.onnx|weights-[0-9a-f]{16}\.\w+"
    r"|records/([1-9][0-9]*\.[^/]+\.json)?|(logs|weights|rollout|passes|test_data_set_[0-9]+)/.*"
    r"|(.*/)?\.[^/]+\.fresh|\.(scratch|again|nested-)[^/]*/.*",
    re.DOTALL,
)
#: A command may write one when the folder already has its place.
_RECORD = re.compile(r"records/([1-9][0-9]*\.[^/]+\.json)?")

_CHECKSUMMED = b'{\n  "sha256": "'


class WrittenFiles(FrozenModel):
    """The content of the folder of a model when it got its place."""

    model: str
    """The name of the folder. A copy of a folder has another one."""
    paths: Items[str]


def write_list(folder: Path, model_id: str) -> None:
    """Write the list of the content of a private folder that becomes that of a model."""
    if (folder / _LIST).is_dir():  # a model created it
        remove_folder(folder / _LIST)
    paths = sorted(name for name in _list_content(folder) if name != _LIST)
    write_json(folder / _LIST, WrittenFiles(model=model_id, paths=tuple(paths)))


def require_written(folder: Path) -> None:
    """Raise an error if the folder of a model contains anything that no export wrote.

    Raises:
        ExporterError: ENVIRONMENT with the first such path; also for a file in place of the folder,
            and for a folder that cannot be read.
    """
    name = find_foreign_path(folder)
    if name is not None:
        fix = "move it away, or name another folder as `build` in [tool.exporter]"
        message = f"{folder / name}: was not written by an export; {fix}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def find_foreign_path(folder: Path) -> str | None:
    """Return the first path in the folder of a model that no export wrote.

    Returns:
        None if there is none, and "" if the folder itself is not one of an export.

    Raises:
        ExporterError: ENVIRONMENT, if a folder cannot be read.
    """
    if not os.path.lexists(folder):
        return None
    if folder.is_symlink() or not folder.is_dir():
        return ""
    content = _list_content(folder)
    make_accessible(folder / _LIST, is_recursive=False)
    if written := WrittenFiles.find(folder / _LIST, PROJECT_LIMIT):
        if written.model == folder.name:
            known = {*written.paths, _LIST}
            others = (name for name in content if name not in known)
            return next((name for name in others if not _RECORD.fullmatch(name)), None)
    elif _is_of_first_release(folder):
        weights = _list_weights(folder)
        others = (name for name in content if not is_result_name(name))
        return next((name for name in others if name not in weights), None)
    return "" if any(True for _ in content) else None


def is_checksummed(path: Path) -> bool:
    """Return whether a file begins like the results or a record of this program."""
    try:
        with open_regular_file(path) as file:
            return file.read(len(_CHECKSUMMED)) == _CHECKSUMMED
    except OSError:
        return False


def is_result_name(name: str) -> bool:
    """Return whether a path in the folder of a model is one that an export writes."""
    return name == _LIST or _RESULT.fullmatch(name) is not None


def _list_content(folder: Path) -> Iterator[str]:
    """Yield the path of each file and folder in a folder, relative to it; of a folder with a `/`.

    Raises:
        ExporterError: ENVIRONMENT, if a folder cannot be read.
    """
    folders = [folder]
    while folders:
        current = folders.pop()
        make_accessible(current, is_recursive=False)
        try:
            entries = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError as error:
            message = f"{current}: cannot be read: {error.strerror}{describe_owner(current)}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        for entry in entries:
            path = Path(entry.path)
            # A name may have any bytes, but JSON has only text.
            name = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                name += "/"
            yield name


def _is_of_first_release(folder: Path) -> bool:
    """Return whether the job or a record of the folder is that of the model with its name."""
    job = _read_json(folder / "job.json").get("spec", {})
    if isinstance(job, dict) and job.get("id") == folder.name:
        return True
    cells = (each.get("cell", {}) for each in _read_records(folder))
    return any(isinstance(each, dict) and each.get("model") == folder.name for each in cells)


def _list_weights(folder: Path) -> set[str]:
    """Return the external data that the records name, which may have any file name."""
    names = set[str]()
    for record in _read_records(folder):
        artifact = record.get("artifact")
        data = artifact.get("external_data", ()) if isinstance(artifact, dict) else ()
        names |= {name for name in data if isinstance(name, str)}
    return names


def _read_records(folder: Path) -> Iterator[dict[str, Any]]:
    return map(_read_json, sorted((folder / "records").glob("*.json")))


def _read_json(path: Path) -> dict[str, Any]:
    make_accessible(path, is_recursive=False)
    try:
        value = json.loads(read_regular_file(path, CELL_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
