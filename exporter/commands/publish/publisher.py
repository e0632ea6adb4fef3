"""The steps from candidates to published folders, one model at a time.

The file and its samples are written to a private folder. The folder is moved, a child process
loads and runs the file at its new path, and the hashes are read again. Only the child process
imports onnx and the runtimes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.commands.publish.changes import describe_replacement
from exporter.commands.publish.descriptions import write_descriptions
from exporter.commands.publish.published_folder import (
    Candidate,
    Publication,
    PublishTarget,
    TargetResult,
    copy_assets,
    copy_model,
    copy_preprocessing,
    find_hash_problems,
    list_edited_texts,
    list_unlisted_files,
    read_contract,
    summarize,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT
from exporter.core.git import find_last_change, find_repository
from exporter.manifest import Device, Manifest, ModelSpec, Project
from exporter.pipeline.build_folder import BuildFolder
from exporter.processes.child_call import ChildFailure, call_in_child

#: The start of the name of the folder of a run. A model ID cannot start with a dot.
_PRIVATE = ".publish-"
#: The content of such a folder: the folder of a model, its lock and replaced publications.
_PRIVATE_FOLDERS = {"staged", "moved"}
_LOCK = ".lock"
#: Seconds.
_MIN_AGE = 60.0


def prepare_destination(destination: Path, build_path: Path) -> Path:
    """Return the absolute path of the folder, and create it if it is missing.

    Raises:
        ExporterError: ENVIRONMENT if it is a symlink, a file, or inside the build folder.
    """
    problem = ""
    if destination.is_symlink():
        problem = "is a symlink; name another folder"
    elif destination.exists() and not destination.is_dir():
        problem = "is not a folder; name another one"
    elif destination.resolve().is_relative_to(build_path.resolve()):
        problem = "is in the build folder, which is temporary; name another folder"
    if problem:
        raise ExporterError(ExitCode.ENVIRONMENT, f"{destination}: {problem}")
    destination.mkdir(parents=True, exist_ok=True)
    return destination.resolve()


@contextmanager
def open_private_folder(destination: Path) -> Iterator[Path]:
    """Yield a new folder in the destination, and remove those of killed runs.

    Each run locks its folder, so an unlocked one belongs to no run.
    """
    for path in destination.glob(f"{_PRIVATE}*"):
        # Between its creation and its lock, a folder of another run is young.
        if _is_private(path) and time.time() - path.lstat().st_mtime > _MIN_AGE:
            with suppress(Timeout, OSError), FileLock(path / _LOCK, timeout=0):
                shutil.rmtree(path, ignore_errors=True)
    private = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=destination))
    with FileLock(private / _LOCK):
        try:
            yield private
        finally:
            shutil.rmtree(private, ignore_errors=True)


def _is_private(folder: Path) -> bool:
    """Return True if a folder has the lock of a run and nothing that no run writes."""
    if folder.is_symlink() or not folder.is_dir() or not (folder / _LOCK).is_file():
        return False
    models = [path for path in folder.iterdir() if path.name != _LOCK]
    inner = (each.name for path in models if path.is_dir() for each in path.iterdir())
    is_known = all(name in _PRIVATE_FOLDERS or name.startswith("old-") for name in inner)
    return is_known and all(path.is_dir() and not path.is_symlink() for path in models)


def find_obstacle(final: Path) -> str:
    """Return the reason against writing the folder `final`.

    Returns:
        "" if nothing exists there, or only a folder that `publish` wrote.
    """
    for path in (final.parent, final):
        if path.is_symlink():
            return f"{path.name} is a symlink in {path.parent.name}; remove it"
        if path.exists() and not path.is_dir():
            return f"{path.name} is not a folder in {path.parent.name}; remove it"
    if not final.exists():
        return ""
    try:
        Publication.from_folder(final)
        others, edited = list_unlisted_files(final), list_edited_texts(final)
    except (OSError, ValueError):
        return "the existing folder was not written by `exporter publish`; move it away"
    if others:
        return f"the existing folder contains other files: {others[0]}; move them away"
    if edited:
        return f"{edited[0]} of the existing folder was edited; move it away"
    return ""


def move_into_place(staged: Path, final: Path) -> None:
    """Rename `staged` to `final` and remove an older publication.

    Raises:
        ExporterError: ENVIRONMENT if the path is occupied in the meantime.
    """
    if reason := find_obstacle(final):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{final.parent.name}/{final.name}: {reason}")
    final.parent.mkdir(exist_ok=True)
    if not final.exists():
        staged.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix="old-", dir=staged.parent)) / final.name
    final.rename(old)
    try:
        staged.rename(final)
    except BaseException:
        old.rename(final)
        raise
    shutil.rmtree(old)


_CHILD = "exporter.commands.publish.child.proof"


@dataclass(slots=True)
class PublishResult:
    """A candidate and the state of its publication."""

    candidate: Candidate
    folder: Path
    commit: str = ""
    problem: str = ""
    """The reason if it was not published; it ends the publication."""
    notes: list[str] = field(default_factory=list)


def publish(
    manifest: Manifest,
    candidates: Sequence[Candidate],
    destination: Path,
    tools: Mapping[str, str],
    environment: Mapping[str, str],
) -> Iterator[PublishResult]:
    """Publish the candidates and yield each result as soon as it is final.

    `destination`: An absolute path; `tools`: those of the results; `environment`: that of the
    child process.

    Raises:
        ExporterError: ENVIRONMENT if another run has locked the build folder, or a symlink is in
            the destination.
    """
    build_folder = BuildFolder.from_project(manifest.project)
    with build_folder.lock(), open_private_folder(destination) as private:
        verifier = ArtifactVerifier(build_folder.path)
        for model, group in groupby(candidates, key=lambda candidate: candidate.model):
            (private / model).mkdir()
            publisher = _ModelPublisher(
                project=manifest.project,
                spec=_resolve_inputs_from(manifest.find_model(model), build_folder),
                built=build_folder.model_folder(model).path.resolve(),
                folder=private / model,
                destination=destination / model,
                tools=dict(tools),
                environment=environment,
            )
            yield from publisher.publish(list(group), verifier)
            shutil.rmtree(private / model)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelPublisher:
    project: Project
    spec: ModelSpec
    built: Path
    """Its folder in the build folder."""
    folder: Path
    """A private one."""
    destination: Path
    tools: dict[str, str]
    environment: Mapping[str, str]

    def publish(
        self, candidates: Sequence[Candidate], verifier: ArtifactVerifier
    ) -> Iterator[PublishResult]:
        root = Path(self.project.root).resolve()
        items = [
            PublishResult(each, self.folder / "staged" / str(each.opset)) for each in candidates
        ]
        for item in items:
            self._copy(item, verifier)
        for item, result in self._request("write_test_data", {"built": self.built}, items):
            item.problem = "; ".join(result.problems)
            item.notes += result.notes
            if item.problem:
                continue
            spec = self.spec.resolve_cell(item.candidate.opset)
            devices = self._list_devices(item.candidate)
            publication = summarize(
                item.candidate,
                spec,
                result,
                item.folder,
                commit=item.commit,
                repository=find_repository(root, self.environment) if item.commit else "",
                tools=self.tools,
            )
            publication, changes = self._compare(item, publication, spec, result)
            item.notes += [f"changed: {each}" for each in changes]
            templates = root / self.project.templates
            write_descriptions(publication, spec, devices, templates, item.folder)
            moved = self.folder / "moved" / item.folder.name
            moved.parent.mkdir(exist_ok=True)
            item.folder = item.folder.rename(moved)
        for item, result in self._request("verify_files", {"root": root}, items):
            item.notes += result.notes
            if item.candidate.warning:  # the warning contains the failures
                item.notes += result.problems
            elif result.problems:
                item.problem = f"it fails at its new path: {'; '.join(result.problems)}"
        for item in items:
            item.problem = item.problem or "; ".join(find_hash_problems(item.folder))
            if not item.problem:
                move_into_place(item.folder, self.destination / str(item.candidate.opset))
            yield item

    def _compare(
        self, item: PublishResult, publication: Publication, spec: ModelSpec, result: TargetResult
    ) -> tuple[Publication, tuple[str, ...]]:
        """Return the publication with the folder that it replaces, and what is different."""
        previous = self._find_previous(item.candidate)
        if previous is None:
            return publication, ()
        try:
            old = (Publication.from_folder(previous), read_contract(previous))
        except (OSError, ValueError) as error:
            return publication, (f"the replaced folder cannot be read: {error}",)
        replaces = describe_replacement(old, (publication, spec), result.numbers)
        changes = replaces.changes if replaces and replaces != old[0].replaces else ()
        return publication.model_copy(update={"replaces": replaces}), changes

    def _find_previous(self, candidate: Candidate) -> Path | None:
        folder = self.destination / str(candidate.opset)
        return folder if folder.is_dir() else None

    def _list_devices(self, candidate: Candidate) -> tuple[Device, ...]:
        names = (record.cell.device for record in candidate.records)
        return tuple(self.project.find_device(name) for name in names)

    def _find_commit(self, candidate: Candidate) -> str:
        root = Path(self.project.root)
        names = (source.file for record in candidate.records for source in record.sources)
        # The name of a list of modules may be longer than the system allows for a file.
        paths = (root / name for name in dict.fromkeys(names) if "*" not in name)
        files = [path for path in paths if path.is_file()]
        return str((files and find_last_change(files, self.environment)) or "")

    def _copy(self, item: PublishResult, verifier: ArtifactVerifier) -> None:
        candidate = item.candidate
        if problem := find_obstacle(self.destination / str(candidate.opset)):
            item.problem = problem
            return
        folder = candidate.artifact.file.rpartition("/")[0]
        problem = verifier.find_problem(candidate.artifact)
        problem = problem or verifier.find_reference_problem(folder)
        if not problem:
            item.folder.mkdir(parents=True)
            try:
                copy_model(candidate, self.built, item.folder)
                copy_assets(candidate, self.spec, Path(self.project.root), item.folder)
                copy_preprocessing(self.spec, Path(self.project.root), item.folder)
                item.commit = self._find_commit(candidate)
            except (ExporterError, OSError) as error:
                problem = str(error)
        if problem:
            item.problem = f"{problem}; run `exporter export {candidate.model}`"

    def _request(
        self, function: str, folders: dict[str, Path], items: Sequence[PublishResult]
    ) -> Iterator[tuple[PublishResult, TargetResult]]:
        """Yield the result of the child process for each item without a problem."""
        items = [item for item in items if not item.problem]
        if not items:
            return
        targets = tuple(
            PublishTarget(
                opset=item.candidate.opset,
                devices=self._list_devices(item.candidate),
                folder=item.folder,
                commit=item.commit,
                previous=self._find_previous(item.candidate),
                has_ties=any(
                    check.metrics.get("tied_samples")
                    for record in item.candidate.records
                    for check in record.checks
                ),
            )
            for item in items
        )
        arguments = {"spec": self.spec, "targets": targets, **folders}
        try:
            results = call_in_child(
                f"{_CHILD}:{function}",
                arguments,
                tuple[TargetResult, ...],
                self.environment,
                seconds=self.spec.timeout,
            )
        except ChildFailure as failure:
            problem = f"the process that loads it {failure}"
            results = (TargetResult(problems=(problem,)),) * len(items)
        yield from zip(items, results, strict=True)


def _resolve_inputs_from(spec: ModelSpec, build_folder: BuildFolder) -> ModelSpec:
    """Return the contract with the call of `inputs_from`, which has the shapes of the inputs."""
    if spec.inputs_from is None:
        return spec
    resolved = ModelSpec.find(build_folder.model_folder(spec.id).contract, CELL_LIMIT)
    if resolved is None:
        return spec
    call = {"inputs": resolved.inputs, "axes": resolved.axes, "outputs": resolved.outputs}
    return spec.model_copy(update=call)
