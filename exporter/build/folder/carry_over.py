"""Split off; to be described."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.records.record import Record


def repair_folder(folder: JobFolder) -> None:
    """Makes a private folder one again, whatever a model put in its place.

    What it lost is lost; that costs its own cells, and not the run.
    """
    for path in (folder.path, folder.records, folder.log(None).parent):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            path.mkdir()
    for path in (folder.job, folder.announcement, *folder.records.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def remove_unrecorded_files(folder: JobFolder) -> None:
    """Removes every exported file that no record speaks of: an interrupted worker's last one.

    What was being written when a worker died goes as well.
    """
    opsets = {record.cell.opset for record in folder.read_records().values()}
    known = {folder.model(opset) for opset in opsets}
    for path in folder.path.glob("*.onnx"):
        if path not in known:
            path.unlink()
    for path in (*folder.path.glob(".*.fresh"), *folder.records.glob(".*.fresh")):
        if not path.is_dir():
            path.unlink()


def carry_over(
    old: JobFolder,
    fresh: JobFolder,
    holds: Callable[[Record], bool],
    *,
    at_once: bool = False,
) -> list[Record]:
    """Brings what an earlier run made, and this one did not, into the fresh folder.

    A file belongs to the test data beside it: earlier ones are kept only where PyTorch says the
    same of the model now as it did then. `old` stays whole until the fresh folder takes its place.

    Args:
        old: The model's folder as it is in place.
        fresh: What this run made; it wins.
        holds: Whether a stored record still speaks for its cell.
        at_once: Both were made by this run: that PyTorch answered one of them does not make the
            failures of the other old.

    Returns:
        The earlier records that could not be kept.
    """
    if old.path.is_symlink() or not old.path.is_dir():
        return []
    made = fresh.read_records()
    models = {record.cell.model for record in made.values()}
    twins = {record.cell.opset: record for record in made.values()}
    same_model = _is_same(old, fresh)
    # Where PyTorch said nothing there are failures alone, which no test data belong to.
    answered = os.path.lexists(old.reference) or (os.path.lexists(fresh.reference) and not at_once)
    lost = []
    for name, record in old.read_records().items():
        if name in made or record.cell.model not in models:
            continue
        twin = twins.get(record.cell.opset)
        fits = (same_model or (not answered and record.artifact is None)) and holds(record)
        if fits and (_is_same_file(record, twin) if twin else _bring(record, old, fresh)):
            _link(old.record(record.cell), fresh.record(record.cell))
        else:
            lost.append(record)
    return lost


def _is_same(one: JobFolder, other: JobFolder) -> bool:
    """Whether PyTorch says the same of both, as far as both asked it."""
    try:
        texts = [folder.reference.read_bytes() for folder in (one, other)]
        if texts[0] == texts[1]:
            return True
        before, after = (Reference.read(text) for text in texts)
    except (OSError, ValueError):
        return False
    return before.is_compatible_with(after)


def _is_same_file(record: Record, twin: Record) -> bool:
    """Whether a record of another device speaks of the very file that was made now."""
    if record.artifact is None or twin.artifact is None:
        return record.artifact is twin.artifact
    return record.artifact.sha256 == twin.artifact.sha256


def _bring(record: Record, old: JobFolder, fresh: JobFolder) -> bool:
    """Links the files of one opset over; False where one of them is missing or is a link."""
    opset = record.cell.opset
    if record.artifact:
        names = (f"{opset}.onnx", *record.artifact.external_data)
        files = [old.path / name for name in names]
        # Weights have their hash in their name: what has the same name is the same.
        wanted = [path for path in files if not (fresh.path / path.name).exists()]
        if any(path.parent != old.path or path.is_symlink() for path in files):
            return False
        if not all(path.is_file() for path in wanted):
            return False
        for path in wanted:
            _link(path, fresh.path / path.name)
    if old.log(opset).is_file() and not fresh.log(opset).exists():
        _link(old.log(opset), fresh.log(opset))
    kept, wanted_there = old.artifacts(opset), fresh.artifacts(opset)
    if kept.is_dir() and not wanted_there.exists():
        for path in kept.iterdir():
            if path.is_file() and not path.is_symlink():
                _link(path, wanted_there / path.name)
    return True


def _link(source: Path, target: Path) -> None:
    """The same file under a second name: the first goes with the folder that it is in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
