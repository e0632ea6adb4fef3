"""Find the files of a build folder that no manifest and no record needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.commands.toolchains import REHEARSALS_FOLDER
from exporter.core.files import CELL_LIMIT, remove_folder, walk_files
from exporter.jobs import WEIGHTS_PATTERN, JobFolder
from exporter.pipeline.build_folder import PARTS_FOLDER
from exporter.records.record import CellId, Record

_WEIGHTS = re.compile(WEIGHTS_PATTERN)
#: The temporary file of a killed process; see `core.files`.
_UNFINISHED = re.compile(r"\..+\.\d+\.fresh")
_OPSET = re.compile(r"([1-9][0-9]*)(\.onnx|\.log|)")
_RECORD = re.compile(r"([1-9][0-9]*)\.(.+)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that can be removed."""

    path: Path
    reason: str
    size: int
    """The freed bytes. A file with a second name elsewhere frees none."""


def find_garbage(build_path: Path, cells: Iterable[CellId]) -> tuple[Garbage, ...]:
    """Search the folders that an export created, for file names of an export.

    A record precedes its files. A file of uncertain origin stays, and so does a stale result. The
    cells are those of all manifests, selected or not.
    """
    by_suffix: dict[str, list[CellId]] = {"": []}
    for cell in cells:
        by_suffix.setdefault(cell.device.suffix, []).append(cell)
    garbage = _search_build(build_path, by_suffix[""])
    rehearsals = build_path / REHEARSALS_FOLDER
    if _is_folder(build_path):
        garbage += [
            _make_garbage(path, "a rehearsal; another one writes it again")
            for path in _list_folder(rehearsals)
        ]
        for path in _list_folder(build_path / PARTS_FOLDER):
            if path.name in by_suffix:
                garbage += _search_build(path, by_suffix[path.name])
            else:
                garbage.append(_make_garbage(path, "no manifest contains this toolchain"))
    return tuple(garbage)


def _search_build(build_path: Path, cells: Iterable[CellId]) -> list[Garbage]:
    """Search the build folder of the project or a part of it."""
    by_model: dict[str, set[tuple[int, str]]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, set()).add((cell.opset, cell.device))
    garbage: list[Garbage] = []
    if _is_folder(build_path):
        for path in sorted(build_path.iterdir()):
            job_folder = JobFolder(path)
            is_job = job_folder.job.is_file() and not job_folder.job.is_symlink()
            is_export = is_job and _is_folder(path) and _is_folder(job_folder.records)
            if path.name.startswith(".") or not is_export:
                continue
            if path.name not in by_model:
                garbage.append(_make_garbage(path, "no manifest contains this model"))
            else:
                garbage += _search_model(job_folder, by_model[path.name])
    return garbage


def remove_garbage(garbage: Garbage) -> None:
    """Remove a file, or a folder with its content. Symlinks are not followed."""
    if _is_folder(garbage.path):
        remove_folder(garbage.path)
    else:
        garbage.path.unlink(missing_ok=True)


def _search_model(job_folder: JobFolder, cells: set[tuple[int, str]]) -> Iterator[Garbage]:
    opsets = {opset for opset, _ in cells}
    records: list[Path] = []
    for path in _list_folder(job_folder.records):
        match = _RECORD.fullmatch(path.name)
        if match and (int(match[1]), match[2]) not in cells:
            yield _make_garbage(path, "no manifest contains this cell")
        elif match:
            records.append(path)
    for path in (*_list_folder(job_folder.path), *_list_folder(job_folder.log(None).parent)):
        match = _OPSET.fullmatch(path.name)
        # ONNX files are in the folder itself. Logs and reports of the exporter are in `logs`.
        is_in_place = (path.suffix == ".onnx") == (path.parent == job_folder.path)
        if match and int(match[1]) not in opsets and is_in_place:
            yield _make_garbage(path, "no manifest contains this opset")
        elif _UNFINISHED.fullmatch(path.name):
            yield _make_garbage(path, "it is incomplete")
    used = _find_used_weights(job_folder, records, opsets)
    for path in _list_folder(job_folder.path):
        if used is not None and _WEIGHTS.fullmatch(path.name) and path.name not in used:
            yield _make_garbage(path, "no file refers to it")


def _find_used_weights(
    job_folder: JobFolder, records: Iterable[Path], opsets: Iterable[int]
) -> set[str] | None:
    """Return the external data of all recorded files.

    Returns:
        The file names, or None if a record cannot be read or a file has no record.
    """
    names: set[str] = set()
    unrecorded = {opset for opset in opsets if job_folder.model(opset).exists()}
    for path in records:
        record = Record.find(path, CELL_LIMIT)
        if record is None:
            return None
        unrecorded.discard(record.cell.opset)
        if record.artifact:
            names |= set(record.artifact.external_data)
    return None if unrecorded else names


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_folder(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder without symlinks, or nothing for a symlink."""
    if not _is_folder(folder):
        return []
    return [path for path in sorted(folder.iterdir()) if not path.is_symlink()]


def _make_garbage(path: Path, reason: str) -> Garbage:
    states = [path.lstat()] if path.is_file() else [state for _, state in walk_files(path)]
    size = sum(state.st_size for state in states if state.st_nlink == 1)
    return Garbage(path=path, reason=reason, size=size)
