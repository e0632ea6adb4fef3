"""Manage the folders of the build."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    describe_owner,
    make_accessible,
    remove_folder,
    remove_unfinished_files,
)
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Project
from exporter.manifest.loader import RESERVED_IDS
from exporter.manifest.syntax.values import split_device
from exporter.records.record import CellId

#: In the build folder. A model ID cannot start with a dot.
REHEARSALS_FOLDER, TOOLCHAINS_FOLDER = ".rehearsals", ".toolchains"


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The build folder of a project, or of one toolchain."""

    path: Path
    toolchain: str = ""
    """The toolchain of its cells; empty: the project's own packages."""

    @classmethod
    def from_project(cls, project: Project) -> BuildFolder:
        """Return the build folder of the project's settings."""
        return cls(Path(project.root) / project.build, project.active_toolchain)

    def find_part(self, cell: CellId) -> BuildFolder:
        """Return the build folder of a cell: this one, or that of the cell's toolchain."""
        toolchain = split_device(cell.device)[1]
        return self if toolchain in ("", self.toolchain) else self.find_toolchain(toolchain)

    def find_toolchain(self, name: str) -> BuildFolder:
        """Return the build folder of a toolchain, below this one."""
        return BuildFolder(self.path / TOOLCHAINS_FOLDER / name, name)

    def owns(self, cell: CellId) -> bool:
        """Return False if the files of a cell are in the folder of a toolchain."""
        return self.find_part(cell) == self

    def cell_folder(self, cell: CellId) -> JobFolder:
        """Return the folder with the files of a cell."""
        return self.find_part(cell).model_folder(cell.model)

    @property
    def results(self) -> Path:
        """The file with all records of the project."""
        return self.path / "results.json"

    @property
    def rehearsals(self) -> Path:
        """The folder with a build folder for each rehearsal."""
        return self.path / REHEARSALS_FOLDER

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

    def model_folder(self, model: str) -> JobFolder:
        """Return the folder of a model's finished files."""
        return JobFolder(self.path / model)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder and move results of killed runs aside, for `list_abandoned`.

        Raises:
            ExporterError: ENVIRONMENT, if another run has the lock, or a symlink or a file has the
                path of a folder.
        """
        _refuse_symlink(self.path)
        self._repair_access()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            message = f"{self.path}: is not a folder; remove it or change `build`"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
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
            yield from self._use_private_folder()
        finally:
            lock.release()

    def _use_private_folder(self) -> Iterator[None]:
        """Create the private folder, and remove it at the end. Keep finished cells on an error."""
        remove_unfinished_files(self.path)
        self.remove_misplaced_folders()
        _refuse_symlink(self._private)
        _refuse_symlink(self._killed)
        self._keep_killed_runs()
        self._private.mkdir()
        try:
            yield
        except BaseException:
            self._keep_killed_runs()
            raise
        remove_folder(self._private)

    def _repair_access(self) -> None:
        """Make each model's folder and records accessible; the rest follows when it is replaced."""
        make_accessible(self.path, is_recursive=False)
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if not path.is_symlink():
                make_accessible(path, is_recursive=False)
                make_accessible(JobFolder(path).records, is_recursive=False)

    def remove_misplaced_folders(self) -> None:
        """Remove folders that a model created in place of files of the program."""
        for path in (self.path / name for name in RESERVED_IDS):
            if path.suffix and path.is_dir() and not path.is_symlink():
                remove_folder(path)

    def list_abandoned(self) -> list[Path]:
        """Return the private folders of killed runs, the oldest first."""
        if not self._killed.is_dir():
            return []
        folders = [path for path in self._killed.iterdir() if not path.is_symlink()]
        return sorted(folders, key=lambda path: (path.lstat().st_mtime_ns, path.name))

    def remove_abandoned(self) -> None:
        """Remove the private folders of killed runs."""
        remove_folder(self._killed)

    def _keep_killed_runs(self) -> None:
        """Keep private folders with finished cells, and folders that were being replaced."""
        if not self._killed.is_dir():
            self._killed.unlink(missing_ok=True)
        if not self._private.is_dir():
            self._private.unlink(missing_ok=True)
            return
        make_accessible(self._private)
        make_accessible(self._killed)
        for path in self._private.iterdir():
            if any(path.glob("records/*.json")) or any(path.glob("*/records/*.json")):
                self._killed.mkdir(exist_ok=True)
                path.rename(self._killed / path.name)
        remove_folder(self._private)

    def create_folder(self, model: str) -> JobFolder:
        """Create a private folder.

        Raises:
            ExporterError: ENVIRONMENT, if `build/<model>` is a symlink.
        """
        _refuse_symlink(self.model_folder(model).path)
        return JobFolder(Path(tempfile.mkdtemp(prefix=f"{model}-", dir=self._private)))

    def replace_model(
        self, model: str, fresh: JobFolder, before_removal: Callable[[Path], None] | None = None
    ) -> None:
        """Rename `fresh` to `build/<model>` and remove the previous folder.

        Args:
            model: The model.
            fresh: Its new folder.
            before_removal: Called with the previous folder, which then contains only the files
                that the new one does not contain.

        Raises:
            ExporterError: ENVIRONMENT, if `build/<model>` is a symlink.
        """
        final = self.model_folder(model).path
        _refuse_symlink(final)
        # mkdtemp creates a folder that only its owner can read.
        fresh.path.chmod(0o755)
        if not final.exists():
            fresh.path.rename(final)
            return
        make_accessible(final)
        self._private.mkdir(parents=True, exist_ok=True)  # a model may have removed it
        old = Path(tempfile.mkdtemp(prefix=f"{model}-old-", dir=self._private)) / model
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
        if not old.is_dir():
            old.unlink()  # a file that no export wrote
            return
        if before_removal:
            for path in old.iterdir():
                if not path.is_symlink() and path.is_file() and (final / path.name).exists():
                    path.unlink()  # the second name of a file that was carried over
            before_removal(old)
        remove_folder(old)


def _refuse_symlink(path: Path) -> None:
    if path.is_symlink():
        message = f"{path.name}: is a symlink; remove it: build output is not written through one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
