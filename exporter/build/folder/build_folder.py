"""The folders of the build: private while a model is at work, put into place by one rename.

In: a fresh folder with what one run made of a model. Out: `build/<model>`, with what an earlier
run made and still holds carried over. Nothing is ever written or moved through a link.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.core.atomic_files import remove_unfinished_files
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Project


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The build folder of a project."""

    path: Path

    @classmethod
    def from_project(cls, project: Project) -> BuildFolder:
        """The build folder that the project's settings name."""
        return cls(Path(project.root) / project.build)

    @property
    def results(self) -> Path:
        """All records of the project."""
        return self.path / "results.json"

    def model_folder(self, model: str) -> JobFolder:
        """Where everything of a model lies once it is done."""
        return JobFolder(self.path / model)

    @property
    def _private(self) -> Path:
        # No model ID starts with a dot.
        return self.path / ".work"

    @property
    def _killed(self) -> Path:
        return self.path / ".killed"

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """What is there while a run is at work, or after one was killed."""
        return (self._private, self._killed)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other runs out, and puts aside what a killed one left: see `list_abandoned`.

        Raises:
            ExporterError: ENVIRONMENT, where another run is at work, or a link or a file is in the
                folder's place.
        """
        _refuse_link(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            message = f"{self.path}: is no folder; files are built there"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        with self._alone():
            remove_unfinished_files(self.path)
            _refuse_link(self._private)
            _refuse_link(self._killed)
            self._put_aside()
            self._private.mkdir()
            try:
                yield
            except BaseException:
                self._put_aside()
                raise
            shutil.rmtree(self._private, ignore_errors=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            message = f"{self.path.name}: another run is at work here; start again when it is done"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        except OSError as error:  # a folder or a link in its place, a file system that is read-only
            message = f"{self.path / '.lock'}: cannot be locked: {error.strerror}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from None
        try:
            yield
        finally:
            lock.release()

    def list_abandoned(self) -> list[Path]:
        """The private folders that killed runs left, the oldest first."""
        if not self._killed.is_dir():
            return []
        folders = [path for path in self._killed.iterdir() if not path.is_symlink()]
        return sorted(folders, key=lambda path: (path.lstat().st_mtime_ns, path.name))

    def remove_abandoned(self) -> None:
        """Clears away what killed runs left."""
        shutil.rmtree(self._killed, ignore_errors=True)

    def _put_aside(self) -> None:
        """Keeps folders of models that have finished cells, or that were being replaced."""
        if not self._killed.is_dir():
            self._killed.unlink(missing_ok=True)
        if not self._private.is_dir():
            self._private.unlink(missing_ok=True)
            return
        for path in self._private.iterdir():
            if any(path.glob("records/*.json")) or any(path.glob("*/records/*.json")):
                self._killed.mkdir(exist_ok=True)
                path.rename(self._killed / path.name)
        shutil.rmtree(self._private, ignore_errors=True)

    def create_folder(self, model: str) -> JobFolder:
        """A new private folder.

        Raises:
            ExporterError: ENVIRONMENT, where a link stands where it is to go once it is done.
        """
        _refuse_link(self.model_folder(model).path)
        return JobFolder(Path(tempfile.mkdtemp(prefix=f"{model}-", dir=self._private)))

    def replace_model(
        self, model: str, fresh: JobFolder, leaving: Callable[[Path], None] | None = None
    ) -> None:
        """Puts `create_folder` where the model belongs, in place of what is there.

        Args:
            model: The model.
            fresh: Its new folder.
            leaving: Called with the old folder before that goes, without what is also in the new.

        Raises:
            ExporterError: ENVIRONMENT, where a link stands in its place.
        """
        final = self.model_folder(model).path
        _refuse_link(final)
        # mkdtemp makes it private; what is done may be read like any other file.
        fresh.path.chmod(0o755)
        if not final.exists():
            fresh.path.rename(final)
            return
        old = Path(tempfile.mkdtemp(prefix=f"{model}-old-", dir=self._private)) / model
        final.rename(old)
        try:
            fresh.path.rename(final)
        except BaseException:
            old.rename(final)
            raise
        if old.is_dir():
            if leaving:
                _without(old, final)
                leaving(old)
            shutil.rmtree(old)
        else:
            old.unlink()  # not made by an export: a file where the folder belongs


def _without(old: Path, new: Path) -> None:
    """Removes the second names of files that are carried over."""
    for path in old.iterdir():
        if not path.is_symlink() and path.is_file() and (new / path.name).exists():
            path.unlink()


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        message = f"{path.name}: is a link; what is built is never written through one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
