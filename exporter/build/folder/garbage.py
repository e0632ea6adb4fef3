"""What lies in the build folder and no promised cell needs.

In: the promised cells and the build folder. Out: the paths that can go, and what that frees.

In doubt a file stays: only folders that an export made are looked into, only files that it names,
and nothing behind a link. A result that no longer holds is still that of a promised cell.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.jobs.job_folder import WEIGHTS_PATTERN, JobFolder
from exporter.records.record import CellId, Record

_WEIGHTS = re.compile(WEIGHTS_PATTERN)
#: A file that was being written when its process died; see `files.py`.
_UNFINISHED = re.compile(r"\..+\.\d+\.fresh")
_OPSET = re.compile(r"([1-9][0-9]*)(\.onnx|\.log|)")
_RECORD = re.compile(r"([1-9][0-9]*)\.(.+)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Something that can go."""

    path: Path
    why: str
    size: int
    """Bytes that this frees; a file that has a second name elsewhere frees none."""


def find_garbage(build: Path, promised: Iterable[CellId]) -> tuple[Garbage, ...]:
    """Looks through the build folder; a record comes before the files that it speaks of.

    Args:
        build: The build folder.
        promised: Every cell of every manifest, selected or not.
    """
    cells: dict[str, set[tuple[int, str]]] = {}
    for cell in promised:
        cells.setdefault(cell.model, set()).add((cell.opset, cell.device))
    found: list[Garbage] = []
    for path in sorted(build.iterdir()) if _is_folder(build) else ():
        folder = JobFolder(path)
        if not _is_folder(path) or path.name.startswith(".") or not _is_made(folder):
            continue
        if path.name not in cells:
            found.append(_garbage(path, "no manifest has this model"))
        else:
            found += _of_model(folder, cells[path.name])
    return tuple(found)


def remove_garbage(garbage: Garbage) -> None:
    """Removes it; of a folder what lies in it, and never what a link there leads to."""
    if _is_folder(garbage.path):
        shutil.rmtree(garbage.path)
    else:
        garbage.path.unlink(missing_ok=True)


def _of_model(folder: JobFolder, cells: set[tuple[int, str]]) -> Iterator[Garbage]:
    opsets = {opset for opset, _ in cells}
    kept: list[Path] = []
    for path in _entries(folder.records):
        match = _RECORD.fullmatch(path.name)
        if match and (int(match[1]), match[2]) not in cells:
            yield _garbage(path, "no manifest promises this cell")
        elif match:
            kept.append(path)
    for path in (*_entries(folder.path), *_entries(folder.log(None).parent)):
        match = _OPSET.fullmatch(path.name)
        if match and int(match[1]) not in opsets and _is_of_opset(path, folder):
            yield _garbage(path, "no manifest promises this opset")
        elif _UNFINISHED.fullmatch(path.name):
            yield _garbage(path, "it was never finished")
    needed = _weights(folder, kept, opsets)
    for path in _entries(folder.path):
        if needed is not None and _WEIGHTS.fullmatch(path.name) and path.name not in needed:
            yield _garbage(path, "no file refers to it")


def _is_of_opset(path: Path, folder: JobFolder) -> bool:
    """The file itself, its log, or the folder of what its exporter left besides."""
    return path.suffix == ".onnx" if path.parent == folder.path else path.suffix != ".onnx"


def _weights(folder: JobFolder, records: Iterable[Path], opsets: Iterable[int]) -> set[str] | None:
    """The weights of files that stay; None where a record cannot tell, or a file has none."""
    names: set[str] = set()
    untold = {opset for opset in opsets if folder.model(opset).exists()}
    for path in records:
        try:
            record = Record.read(path.read_bytes())
        except (OSError, ValueError):
            return None
        untold.discard(record.cell.opset)
        names |= set(record.artifact.external_data) if record.artifact else set()
    return None if untold else names


def _is_made(folder: JobFolder) -> bool:
    """Whether an export made the folder: others may keep theirs beside it."""
    return folder.job.is_file() and not folder.job.is_symlink() and _is_folder(folder.records)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, itself no link; links in it are nobody's to remove."""
    if not _is_folder(folder):
        return []
    return [path for path in sorted(folder.iterdir()) if not path.is_symlink()]


def _garbage(path: Path, why: str) -> Garbage:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    states = [each.lstat() for each in files if not each.is_symlink()]
    return Garbage(
        path=path, why=why, size=sum(state.st_size for state in states if state.st_nlink == 1)
    )
