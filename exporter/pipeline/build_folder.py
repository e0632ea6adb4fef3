"""Read, write, carry over and recover the folders and records of a build."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from filelock import FileLock, Timeout

from exporter.cache.code_blocks import BLOCKS, find_changed_block
from exporter.cache.fingerprint import is_transient
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import (
    CELL_LIMIT,
    NESTED_PREFIX,
    PROJECT_LIMIT,
    describe_owner,
    make_accessible,
    read_regular_file,
    remove_folder,
    remove_unfinished_files,
    write_text,
)
from exporter.core.text import pluralize
from exporter.jobs import Announcement, Job, JobFolder, Reference, write_json
from exporter.manifest import Project
from exporter.manifest.loader import RESERVED_IDS
from exporter.pipeline.written_files import (
    find_foreign_path,
    is_checksummed,
    require_written,
    write_list,
)
from exporter.records.baseline import extract_outcome
from exporter.records.record import CellId, Record, Status

#: In the build folder. A model ID cannot start with a dot.
PARTS_FOLDER = ".toolchains"
#: The hidden files of a build folder, beside the folders of its runs.
_OWN_FILES = frozenset({".gitignore", ".lock", ".committed.lock"})
#: Seconds that a command waits for another one, which takes a second if no person reviews.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The build folder of a project, or the part of it for devices with a suffix."""

    path: Path
    suffix: str = ""
    """The suffix of its devices; empty: none."""

    @classmethod
    def from_project(cls, project: Project) -> BuildFolder:
        return cls(Path(project.root) / project.build, project.active_suffix)

    def find_part(self, cell: CellId) -> BuildFolder:
        """Return the build folder of a cell: this one, or the part for its device."""
        suffix = cell.device.suffix
        return self if suffix in ("", self.suffix) else self.get_part(suffix)

    def get_part(self, suffix: str) -> BuildFolder:
        return BuildFolder(self.path / PARTS_FOLDER / suffix, suffix)

    def owns(self, cell: CellId) -> bool:
        """Return False if the files of a cell are in another part."""
        return self.find_part(cell) == self

    def cell_folder(self, cell: CellId) -> JobFolder:
        return self.find_part(cell).model_folder(cell.model)

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def shard_note(self) -> Path:
        """The note that one shard of an export is finished."""
        return self.path / "shard.json"

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """The folders that exist during a run or after a killed one."""
        return (self._private, self._killed)

    @property
    def _private(self) -> Path:
        # A model ID cannot start with a dot.
        return self.path / ".work"

    @property
    def _killed(self) -> Path:
        return self.path / ".killed"

    def model_folder(self, model_id: str) -> JobFolder:
        return JobFolder(self.path / model_id)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder and move results of killed runs aside, for `list_abandoned`.

        Raises:
            ExporterError: ENVIRONMENT, if another run has the lock, a symlink or a file has the
                path of a folder, or a file of another program has the name of one of an export.
        """
        self._claim()
        # Each model's folder and records; the rest follows when it is replaced.
        for path in self.path.iterdir():
            if not path.is_symlink():
                make_accessible(path, is_recursive=False)
                make_accessible(JobFolder(path).records, is_recursive=False)
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            message = f"{self.path.name}: another run has locked the folder; wait until it ends"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        except OSError as error:  # a folder or a symlink, or a read-only file system
            path = self.path / ".lock"
            message = f"{path}: cannot be locked: {error.strerror}{describe_owner(path)}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        try:
            remove_unfinished_files(self.path)
            self.remove_misplaced_folders()  # only empty ones exist
            for path in self.private_paths:
                _refuse_symlink(path)
                if os.path.lexists(path) and not path.is_dir():
                    _refuse_other(path)
            self._keep_killed_runs()
            self._private.mkdir(exist_ok=True)
            try:
                yield
            except BaseException:  # keep finished cells
                self._keep_killed_runs()
                raise
            _remove_private_folders(self._private)
        finally:
            lock.release()

    def write_page(self, name: str, page: str) -> None:
        """Write a page beside the results, which need not exist.

        Raises:
            ExporterError: ENVIRONMENT, if it cannot be written, or would replace a file of another
                program.
        """
        self._claim()
        try:
            (self.path / ".lock").touch(exist_ok=False)  # the sign of a folder of this program
        except OSError as error:
            if not isinstance(error, FileExistsError):
                message = f"{self.path}: cannot be written: {error.strerror}"
                raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        write_text(self.path / name, page)

    def _claim(self) -> None:
        """Create the folder, or raise an error if it is none of this program."""
        _refuse_symlink(self.path)
        make_accessible(self.path, is_recursive=False)
        self._refuse_other_files()
        is_new = not self.path.exists()
        self._create()
        if is_new:  # a project without `init` has no line for git
            write_text(self.path / ".gitignore", "*\n")

    @contextmanager
    def lock_committed_files(self) -> Iterator[None]:
        """Wait until no other command changes the baseline or the evidence.

        Raises:
            ExporterError: ENVIRONMENT, if another command does not end, or if the folder or its
                lock cannot be created.
        """
        self._create()
        path = self.path / ".committed.lock"
        try:
            lock = FileLock(path).acquire(timeout=_PATIENCE)
        except Timeout:
            problem = "another command changes the baseline or the evidence; wait until it ends"
            raise ExporterError(ExitCode.ENVIRONMENT, f"{self.path.name}: {problem}") from None
        except OSError as error:
            message = f"{path}: cannot be locked: {error.strerror}{describe_owner(path)}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        with lock:
            yield

    def _create(self) -> None:
        """Create the folder, if it does not exist.

        Raises:
            ExporterError: ENVIRONMENT, if a file has its path, or the system refuses it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            message = (
                f"{self.path}: is not a folder; move it away, or name another folder as `build`"
            )
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None

    def _refuse_other_files(self) -> None:
        """Raise an error if a path that an export would write exists, and no export wrote it.

        The first run creates the lock. So if the lock exists, an export wrote these paths.
        """
        # A copy of a build folder, such as an artifact of CI, may lack the hidden lock.
        is_known = (self.path / ".lock").is_file() or is_checksummed(self.results)
        names = RESERVED_IDS - {"repro"}  # `repro` checks each of its folders itself
        for path in (*(self.path / name for name in sorted(names)), self._private, self._killed):
            is_misplaced = bool(path.suffix) and path.is_dir() and not path.is_symlink()
            if any(path.iterdir()) if is_misplaced else not is_known and os.path.lexists(path):
                _refuse_symlink(path)
                _refuse_other(path)

    def require_written(self, cells: Iterable[CellId]) -> None:
        """Raise an error if the folder of a model contains a file that no export wrote.

        Raises:
            ExporterError: ENVIRONMENT with a problem for each such folder.
        """
        problems: list[Problem] = []
        for path in dict.fromkeys(self.cell_folder(cell).path for cell in cells):
            try:
                require_written(path)
            except ExporterError as error:
                problems += error.problems
        if problems:
            raise ExporterError(ExitCode.ENVIRONMENT, problems)

    def find_foreign_path(self, folder: Path) -> Path | None:
        """Return the first path that no export wrote, at or below a path.

        That is one in this folder or a part of it; a path in the folder of a model has none.
        """
        if folder.parent.parent == self.path and folder.parent.name.startswith("."):
            part = BuildFolder(folder)
            paths = (path for path in sorted(folder.iterdir()) if path.name not in RESERVED_IDS)
            return next(filter(None, map(part.find_foreign_path, paths)), None)
        if folder.parent != self.path:
            return None
        if folder in self.private_paths and folder.is_dir() and not folder.is_symlink():
            return next((each for each in folder.iterdir() if not _is_private_folder(each)), None)
        if folder.name in _OWN_FILES and folder.is_file() and not folder.is_symlink():
            return None
        name = find_foreign_path(folder)
        return None if name is None else folder / name

    def remove_misplaced_folders(self) -> None:
        """Remove folders that a model created in this run in place of files of the program."""
        for path in (self.path / name for name in RESERVED_IDS):
            if path.suffix and path.is_dir() and not path.is_symlink():
                remove_folder(path)

    def list_abandoned(self) -> list[Path]:
        if not self._killed.is_dir():
            return []
        folders = [path for path in self._killed.iterdir() if _is_private_folder(path)]
        return sorted(folders, key=lambda path: (path.lstat().st_mtime_ns, path.name))

    def remove_abandoned(self) -> None:
        _remove_private_folders(self._killed)

    def _keep_killed_runs(self) -> None:
        """Keep private folders with finished cells, and folders that were being replaced."""
        if not self._killed.is_dir():
            self._killed.unlink(missing_ok=True)
        if not self._private.is_dir():
            self._private.unlink(missing_ok=True)
            return
        make_accessible(self._private)
        make_accessible(self._killed)
        for path in filter(_is_private_folder, self._private.iterdir()):
            if any(path.glob("records/*.json")) or any(path.glob("*/records/*.json")):
                self._killed.mkdir(exist_ok=True)
                path.rename(self._killed / path.name)
        _remove_private_folders(self._private)

    def create_folder(self, model_id: str) -> JobFolder:
        """Create a private folder.

        Raises:
            ExporterError: ENVIRONMENT, if `build/<model>` is a symlink.
        """
        _refuse_symlink(self.model_folder(model_id).path)
        return JobFolder(Path(tempfile.mkdtemp(prefix=f"{model_id}-", dir=self._private)))

    def replace_model(self, model_id: str, fresh: JobFolder) -> None:
        """Rename `fresh` to `build/<model>` and remove the previous folder.

        Raises:
            ExporterError: ENVIRONMENT, if `build/<model>` is a symlink, or contains a file that no
                export wrote.
        """
        final = self.model_folder(model_id).path
        _refuse_symlink(final)
        require_written(final)
        write_list(fresh.path, model_id)
        # mkdtemp creates a folder that only its owner can read.
        fresh.path.chmod(0o755)
        if not final.exists():
            fresh.path.rename(final)
            return
        make_accessible(final)
        self._private.mkdir(parents=True, exist_ok=True)  # a model may have removed it
        old = Path(tempfile.mkdtemp(prefix=f"{model_id}-old-", dir=self._private)) / model_id
        try:
            final.rename(old)
        except OSError as error:
            message = f"{final}: cannot be replaced: {error.strerror}{describe_owner(final)}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        try:
            fresh.path.rename(final)
        except BaseException:
            old.rename(final)
            raise
        remove_folder(old)


#: The names that `tempfile.mkdtemp` gives to the folders of jobs and of replaced models.
_PRIVATE_NAME = re.compile(r".+-[a-z0-9_]{8}(\.tmp)?")


def _is_private_folder(path: Path) -> bool:
    is_folder = path.is_dir() and not path.is_symlink()
    return is_folder and _PRIVATE_NAME.fullmatch(path.name) is not None


def _remove_private_folders(folder: Path) -> None:
    """Remove the folders of a run, and the folder of them if nothing of a person is in it."""
    make_accessible(folder)
    if folder.is_dir():
        for path in filter(_is_private_folder, [*folder.iterdir()]):
            remove_folder(path)
        with suppress(OSError):  # files of the user stay
            folder.rmdir()


def _refuse_symlink(path: Path) -> None:
    if path.is_symlink():
        message = f"{path.name}: is a symlink; remove it: build output is not written through one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def _refuse_other(path: Path) -> NoReturn:
    fix = "move it away, or name another folder as `build` in [tool.exporter]"
    message = f"{path}: was not written by an export; {fix}"
    raise ExporterError(ExitCode.ENVIRONMENT, message)


class FolderRecords:
    """The records of one folder. The first access reads them."""

    def __init__(self, job_folder: JobFolder) -> None:
        self.folder = job_folder

    @cached_property
    def by_cell(self) -> dict[CellId, Record]:
        return self.folder.read_records()

    def write(self, record: Record) -> None:
        write_json(self.folder.record(record.cell), record)
        self.by_cell[record.cell] = record

    def link(self, record: Record, source: Path) -> None:
        """Add a record as a second name of its file in another folder."""
        target = self.folder.record(record.cell)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(source)
        except OSError:  # a file system without hard links, or the model removed the file
            write_json(target, record)
        self.by_cell[record.cell] = record

    def remove(self, cell: CellId) -> None:
        self.folder.record(cell).unlink(missing_ok=True)
        self.by_cell.pop(cell, None)

    def discard(self) -> None:
        """Read the records again at the next access, because the folder was repaired."""
        vars(self).pop("by_cell", None)


class StoredRecords:
    """The records of all models in a build folder, and of its parts."""

    def __init__(self, build_folder: BuildFolder) -> None:
        self.build = build_folder
        self._models: dict[str, FolderRecords] = {}
        self._parts: dict[str, StoredRecords] = {}

    def get(self, cell: CellId) -> Record | None:
        """Return the record of a cell, or None if there is none.

        The paths of a part's files are relative to this build folder.
        """
        if self.build.owns(cell):
            return self.get_model(cell.model).by_cell.get(cell)
        part = self.build.find_part(cell)
        record = self._get_part(part).get(cell)
        if record is None:
            return None
        folder, artifact = part.path.relative_to(self.build.path).as_posix(), record.artifact
        if artifact is not None:
            artifact = artifact.model_copy(update={"file": f"{folder}/{artifact.file}"})
        log = f"{folder}/{record.log}" if record.log else ""
        return record.model_copy(update={"artifact": artifact, "log": log})

    def write_to_part(self, record: Record) -> None:
        """Write a record of a cell whose environment cannot be created."""
        part = self._get_part(self.build.find_part(record.cell))
        part.get_model(record.cell.model).write(record)

    def discard_parts(self) -> None:
        """Read the records of parts again, because another process wrote them."""
        self._parts.clear()

    def _get_part(self, part: BuildFolder) -> StoredRecords:
        return self._parts.setdefault(part.suffix, StoredRecords(part))

    def get_model(self, model_id: str) -> FolderRecords:
        if model_id not in self._models:
            self._models[model_id] = FolderRecords(self.build.model_folder(model_id))
        return self._models[model_id]

    def replace_model(self, model_id: str, fresh: FolderRecords) -> None:
        self.build.replace_model(model_id, fresh.folder)
        fresh.folder = self.build.model_folder(model_id)
        self._models[model_id] = fresh

    def is_damaged(self, cell: CellId) -> bool:
        """Return True if the cell's record file exists and is invalid."""
        path = self.build.cell_folder(cell).record(cell)
        return self.get(cell) is None and os.path.lexists(path)

    def find_missing_reason(self, cell: CellId) -> str:
        if self.is_damaged(cell):
            return "its record was changed or damaged"
        return "it has not been exported yet"


def repair_folder(job_folder: JobFolder) -> bool:
    """Restore the structure of a private folder that a model may have changed.

    Lost files invalidate only their own cells.

    Returns:
        True if a folder had to be created.
    """
    make_accessible(job_folder.path)
    was_lost = False
    for path in (job_folder.path, job_folder.records, job_folder.log(None).parent):
        if path.is_symlink() or not path.is_dir():
            was_lost = True
            path.unlink(missing_ok=True)
            path.mkdir(parents=True)
    nested = job_folder.path.glob(f"{NESTED_PREFIX}*")
    for path in (job_folder.job, job_folder.announcement, *job_folder.records.iterdir(), *nested):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    for parent in (job_folder.path, job_folder.records, job_folder.log(None).parent):
        for path in parent.iterdir():
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode) and path.suffix == ".log":
                shutil.rmtree(path)
            elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                path.unlink()  # a link, a pipe or a device
    return was_lost


def remove_unrecorded_files(records: FolderRecords) -> None:
    """Remove ONNX files without a record, and files that a dead worker was writing."""
    job_folder = records.folder
    opsets = {cell.opset for cell in records.by_cell}
    recorded = {job_folder.model(opset) for opset in opsets}
    artifacts = (record.artifact for record in records.by_cell.values() if record.artifact)
    recorded |= {job_folder.path / name for each in artifacts for name in each.external_data}
    for path in job_folder.path.glob("*.onnx"):
        if path not in recorded:
            path.unlink()
    for path in (*job_folder.path.glob(".*.fresh"), *job_folder.records.glob(".*.fresh")):
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

    `same_run`: True if one run created both. The failures of a part without PyTorch's outputs
    are then up to date, even if the other part has outputs.

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
        texts = [
            read_regular_file(job_folder.reference, PROJECT_LIMIT) for job_folder in (one, other)
        ]
        if texts[0] == texts[1]:
            return True
        before, after = (Reference.read(text) for text in texts)
    except (OSError, ValueError):
        return False
    return before.is_compatible_with(after)


def _link_files(record: Record, current: Record | None, old: JobFolder, fresh: JobFolder) -> bool:
    """Link the files of one opset.

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


#: Statuses that only the model and its file decide.
_DETERMINISTIC = frozenset({Status.PASS, Status.FAIL, Status.ERROR, Status.INCONCLUSIVE})


def mark_flaky(old: FolderRecords, fresh: FolderRecords) -> None:
    """Mark each new record that differs from the old one with the same inputs.

    The mark stays until an input changes, because one more equal result proves nothing.
    """
    if old.folder.path.is_symlink() or not old.folder.path.is_dir():
        return
    for cell, record in tuple(fresh.by_cell.items()):
        before = old.by_cell.get(cell)
        if before and (text := describe_flakiness(before, record)):
            fresh.write(record.model_copy(update={"flaky": text}))


def describe_flakiness(before: Record, after: Record) -> str:
    """Return the text for `Record.flaky` of `after`, or "" if the result is not flaky."""
    if not {before.status, after.status} <= _DETERMINISTIC:
        return ""
    if after.untracked or not all(source.state for source in after.sources):
        return ""
    states = [
        {source.file: source.state for source in record.sources}
        | record.packages
        | record.variables
        for record in (before, after)
    ]
    # A run that ends with an exception reads fewer files than a complete one.
    first, second = sorted(states, key=len)
    is_partial = Status.ERROR in (before.status, after.status)
    has_same_inputs = (is_partial or len(first) == len(second)) and all(
        state == second.get(name)
        or (state.startswith(BLOCKS) and find_changed_block(state, second.get(name, "=")) is None)
        for name, state in first.items()
    )
    if before.fingerprint != after.fingerprint or not has_same_inputs:
        return ""
    old, new = extract_outcome(before), extract_outcome(after)
    if all(
        getattr(old, name) == getattr(new, name)
        for name in ("status", "stage", "check", "other_checks")
    ):
        return before.flaky
    return f"was {old} in an earlier run of the very same inputs"


def recover_killed_runs(
    stored: StoredRecords, is_valid: Callable[[Record], bool]
) -> tuple[str, ...]:
    """Move finished results of killed runs to their models, and remove the rest.

    All records count except those of the last announced cells, as after a crash of the worker.
    `decide` verifies the files, as for any other record. The build folder is locked.

    Returns:
        A line for each model with recovered results.
    """
    build_folder = stored.build
    for path in build_folder.list_abandoned():
        # The run died between the two renames of `BuildFolder.replace_model`.
        for child in path.glob("*"):
            # Only the folder of a replaced model has this name and contains records.
            final = build_folder.model_folder(child.name).path
            is_replaced = path.name.startswith(f"{child.name}-old-") and not child.is_symlink()
            if is_replaced and not final.exists() and not final.is_symlink():
                child.rename(final)
    notes = [
        note
        for path in build_folder.list_abandoned()
        if (note := _recover_folder(stored, path, is_valid))
    ]
    build_folder.remove_abandoned()
    return tuple(notes)


def _recover_folder(stored: StoredRecords, path: Path, is_valid: Callable[[Record], bool]) -> str:
    job_folder = JobFolder(path)
    job = Job.find(job_folder.job, CELL_LIMIT)
    model_id = job.spec.id if job else ""
    # Records must not be removed through a symlink.
    if not job or not path.name.startswith(f"{model_id}-") or job_folder.records.is_symlink():
        return ""
    announcement = Announcement.find(job_folder.announcement, CELL_LIMIT)
    unfinished = announcement.cells if announcement else job.cells()
    records = FolderRecords(job_folder)
    for cell, record in tuple(records.by_cell.items()):
        is_finished = cell.model == model_id and cell not in unfinished
        if not is_finished or is_transient(record) or not is_valid(record):
            records.remove(cell)
    if not records.by_cell:
        return ""
    count = len(records.by_cell)
    remove_unrecorded_files(records)
    old = stored.get_model(model_id)
    mark_flaky(old, records)
    # Valid results of the build folder have priority over the recovered ones.
    if any(is_valid(record) for record in carry_over(old, records, is_valid)):
        return ""
    stored.replace_model(model_id, records)
    return f"{model_id}: recovered {pluralize(count, 'result')} of a killed run"
