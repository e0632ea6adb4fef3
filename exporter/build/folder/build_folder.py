"""The folders of the build: private while a model is at work, put into place by one rename.

In: a fresh folder with what one run made of a model. Out: `build/<model>`, with what an earlier
run made and still holds carried over. Nothing is ever written or moved through a link.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.errors import ExitCode, ExporterError
from exporter.files import forget_unfinished
from exporter.job import JobFolder, Reference
from exporter.manifest import Project
from exporter.record import CellId, Record


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The build folder of a project."""

    path: Path

    @classmethod
    def of(cls, project: Project) -> BuildFolder:
        """The build folder that the project's settings name."""
        return cls(Path(project.root) / project.build)

    @property
    def results(self) -> Path:
        """All records of the project."""
        return self.path / "results.json"

    def model(self, model: str) -> JobFolder:
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
    def unfinished(self) -> tuple[Path, ...]:
        """What is there while a run is at work, or after one was killed."""
        return (self._private, self._killed)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other runs out, and puts aside what a killed one left: see `left`.

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
            forget_unfinished(self.path)
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

    def left(self) -> list[Path]:
        """The private folders that killed runs left, the oldest first."""
        if not self._killed.is_dir():
            return []
        folders = [path for path in self._killed.iterdir() if not path.is_symlink()]
        return sorted(folders, key=lambda path: (path.lstat().st_mtime_ns, path.name))

    def forget_left(self) -> None:
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

    def fresh(self, model: str) -> JobFolder:
        """A new private folder.

        Raises:
            ExporterError: ENVIRONMENT, where a link stands where it is to go once it is done.
        """
        _refuse_link(self.model(model).path)
        return JobFolder(Path(tempfile.mkdtemp(prefix=f"{model}-", dir=self._private)))

    def place(
        self, model: str, fresh: JobFolder, leaving: Callable[[Path], None] | None = None
    ) -> None:
        """Puts `fresh` where the model belongs, in place of what is there.

        Args:
            model: The model.
            fresh: Its new folder.
            leaving: Called with the old folder before that goes, without what is also in the new.

        Raises:
            ExporterError: ENVIRONMENT, where a link stands in its place.
        """
        final = self.model(model).path
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


class Stored:
    """The records in a build folder, each model's read once."""

    def __init__(self, build: BuildFolder) -> None:
        self._build = build
        self._models: dict[str, dict[str, Record]] = {}

    @property
    def path(self) -> Path:
        """The build folder, where the files lie that the records speak of."""
        return self._build.path

    def of(self, cell: CellId) -> Record | None:
        """The record of the cell as it was found; None where there is none."""
        return self.of_model(cell.model).get(str(cell))

    def of_model(self, model: str) -> Mapping[str, Record]:
        """The records of the model's cells, by their text."""
        if model not in self._models:
            self._models[model] = self._build.model(model).read_records()
        return self._models[model]

    def is_damaged(self, cell: CellId) -> bool:
        """Whether something lies in the place of the cell's record and is none."""
        place = self._build.model(cell.model).record(cell)
        return self.of(cell) is None and os.path.lexists(place)

    def why_none(self, cell: CellId) -> str:
        """Why there is no record of the cell."""
        if self.is_damaged(cell):
            return "its record was changed or damaged"
        return "it has not been exported yet"


def mend(folder: JobFolder) -> None:
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


def drop_unproved(folder: JobFolder) -> None:
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


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        message = f"{path.name}: is a link; what is built is never written through one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def _is_same(one: JobFolder, other: JobFolder) -> bool:
    """Whether PyTorch says the same of both, as far as both asked it."""
    try:
        texts = [folder.reference.read_bytes() for folder in (one, other)]
        if texts[0] == texts[1]:
            return True
        before, after = (Reference.read(text) for text in texts)
    except (OSError, ValueError):
        return False
    return before.agrees(after)


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
