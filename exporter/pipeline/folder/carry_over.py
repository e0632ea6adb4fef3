"""Carry results of an earlier run, or of another part of a model, over to a new folder."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from exporter.core.files import PROJECT_LIMIT, make_accessible, read_regular_file
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.pipeline.folder.stored_records import FolderRecords
from exporter.records.record import Record


def repair_folder(folder: JobFolder) -> bool:
    """Restore the structure of a private folder that a model may have changed.

    Lost files invalidate only their own cells.

    Returns:
        True if a folder had to be created.
    """
    make_accessible(folder.path)
    was_lost = False
    for path in (folder.path, folder.records, folder.log(None).parent):
        if path.is_symlink() or not path.is_dir():
            was_lost = True
            path.unlink(missing_ok=True)
            path.mkdir(parents=True)
    for path in (folder.job, folder.announcement, *folder.records.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    for parent in (folder.path, folder.records, folder.log(None).parent):
        for path in parent.iterdir():
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode) and path.suffix == ".log":
                shutil.rmtree(path)
            elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                path.unlink()  # a link, a pipe or a device
    return was_lost


def remove_unrecorded_files(records: FolderRecords) -> None:
    """Remove ONNX files without a record, and files that a dead worker was writing."""
    folder = records.folder
    opsets = {cell.opset for cell in records.by_cell}
    recorded = {folder.model(opset) for opset in opsets}
    for path in folder.path.glob("*.onnx"):
        if path not in recorded:
            path.unlink()
    for path in (*folder.path.glob(".*.fresh"), *folder.records.glob(".*.fresh")):
        if not path.is_dir():
            path.unlink()


def carry_over(
    old: FolderRecords,
    fresh: FolderRecords,
    is_valid: Callable[[Record], bool],
    *,
    same_run: bool = False,
) -> list[Record]:
    """Link earlier results of a model into its new folder.

    A file belongs to its test data. It is carried over only if PyTorch's outputs have not changed.
    `old` stays complete until the new folder replaces it.

    Args:
        old: The earlier results.
        fresh: The new results, which have priority.
        is_valid: Returns True if an earlier record is up to date.
        same_run: True if one run created both. The failures of a part without PyTorch's outputs are
            then up to date, even if the other part has outputs.

    Returns:
        The earlier records that were not carried over.
    """
    if old.folder.path.is_symlink() or not old.folder.path.is_dir():
        return []
    models = {cell.model for cell in fresh.by_cell}
    by_opset = {cell.opset: record for cell, record in fresh.by_cell.items()}
    same_model = _have_same_reference(old.folder, fresh.folder)
    # Without a reference, only failures exist, and they have no test data.
    has_reference = os.path.lexists(old.folder.reference) or (
        os.path.lexists(fresh.folder.reference) and not same_run
    )
    dropped = []
    for cell, record in old.by_cell.items():
        if cell in fresh.by_cell or cell.model not in models:
            continue
        is_compatible = same_model or (not has_reference and record.artifact is None)
        if (
            is_compatible
            and is_valid(record)
            and _link_files(record, by_opset.get(cell.opset), old.folder, fresh.folder)
        ):
            fresh.link(record, old.folder.record(cell))
        else:
            dropped.append(record)
    return dropped


def _have_same_reference(one: JobFolder, other: JobFolder) -> bool:
    """Return True if PyTorch's outputs are equal for all common samples."""
    try:
        texts = [read_regular_file(folder.reference, PROJECT_LIMIT) for folder in (one, other)]
        if texts[0] == texts[1]:
            return True
        before, after = (Reference.read(text) for text in texts)
    except (OSError, ValueError):
        return False
    return before.is_compatible_with(after)


def _link_files(record: Record, current: Record | None, old: JobFolder, fresh: JobFolder) -> bool:
    """Link the files of one opset.

    Args:
        record: The earlier record.
        current: A new record of the same opset on another device.
        old: The earlier folder.
        fresh: The new folder.

    Returns:
        False if a file is missing or a symlink, or the new record has another file.
    """
    if current:
        if record.artifact is None or current.artifact is None:
            return record.artifact is current.artifact
        return record.artifact.sha256 == current.artifact.sha256
    opset = record.cell.opset
    if record.artifact:
        files = [old.path / n for n in (f"{opset}.onnx", *record.artifact.external_data)]
        # The name of external data is its hash: files with the same name are equal.
        absent = [path for path in files if not (fresh.path / path.name).exists()]
        if any(path.parent != old.path or path.is_symlink() for path in files):
            return False
        if not all(path.is_file() for path in absent):
            return False
        for path in absent:
            _link(path, fresh.path / path.name)
    if old.log(opset).is_file() and not fresh.log(opset).exists():
        _link(old.log(opset), fresh.log(opset))
    source, target = old.artifacts(opset), fresh.artifacts(opset)
    if source.is_dir() and not target.exists():
        for path in source.iterdir():
            if path.is_file() and not path.is_symlink():
                _link(path, target / path.name)
    return True


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
