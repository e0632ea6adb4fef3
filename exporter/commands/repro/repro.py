"""The command `repro`: a folder that shows the failure of a cell without this tool."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

import exporter
from exporter.cache.states import FOLDER, MISSING, split_listing
from exporter.commands.repro.repro_script import (
    render_readme,
    render_repro_script,
    split_reference,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    CELL_LIMIT,
    PROJECT_LIMIT,
    copy_file,
    hash_file,
    read_regular_file,
    write_text,
)
from exporter.core.frozen_model import FrozenModel
from exporter.core.text import join_lines
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Device, ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import Record
from exporter.report.rows.failures import find_repro_obstacle

T = TypeVar("T", bound=FrozenModel)
#: The folder with the project's files, at the same relative paths as in the project.
SOURCES = "source"
#: The tensors for the export, and those that show the failure.
DECLARED, SHOWING = "declared", "showing"
#: The folder with the files around a broken pass.
_PASSES = "passes"
#: It needs numpy only; this process does not import it.
_COMPARATORS = Path(exporter.__file__).parent / "checks" / "comparison" / "comparators.py"
#: The paths and hashes of the files of a reproducer, so that no other one is removed.
_WRITTEN = ".written"
#: What Python writes when the script runs.
_CACHE = "__pycache__"
_ANONYMIZE = "exporter.commands.repro.child:anonymize"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedCell:
    """The input of a reproducer."""

    spec: ModelSpec
    record: Record
    device: Device
    tools: dict[str, str]
    """Versions by name."""
    root: Path
    """The project's root."""
    built: JobFolder
    """The model's folder in the build folder."""
    is_anonymous: bool = False
    """Whether the script sets other weights, of `weights.json`."""


def write_reproducer(reproduced: ReproducedCell, folder: Path) -> None:
    """Write the folder, in place of an older reproducer.

    Raises:
        ExporterError: ENVIRONMENT if `folder` contains other files or the model's tensors are
            missing; NOTHING_SELECTED if the failure needs this tool.
    """
    reason = find_repro_obstacle(reproduced.record)
    if not reason and not reproduced.device.row.has_script:
        reason = f"a script cannot use the runtime '{reproduced.device.runtime}'"
    if reason:
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{reproduced.record.cell}: {reason}")
    spec = _resolve_call(reproduced)
    reference = _read(Reference, reproduced.built.reference)
    name = reproduced.record.blame.sample if reproduced.record.blame else ""
    failing = [item for item in reference.samples if item.name == name and not item.error]
    sample = (failing or list(reference.samples))[0]
    # The folders with the files before and after the broken pass, if there is one.
    files, last = (
        reproduced.built.passes(reproduced.record.cell.opset),
        reproduced.record.broken_pass,
    )
    around = {"before": files / str(last - 1), "after": files / str(last)} if last else {}
    for path in around.values():
        if not path.is_dir():
            message = f"{path}: is missing; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    if reproduced.is_anonymous:
        spec = spec.model_copy(update={"weights": ""})
    else:
        _prepare_folder(folder)
        for target, source in ((DECLARED, reference.samples[0]), (SHOWING, sample)):
            tensors = reproduced.built.sample(source.index)
            # Inputs and float64 outputs; the script computes PyTorch's own outputs.
            paths = [*sorted(tensors.glob("input_*.pb")), *sorted(tensors.glob("float64_*.pb"))]
            if not paths:
                message = f"{tensors}: contains no inputs; export the model again"
                raise ExporterError(ExitCode.ENVIRONMENT, message)
            (folder / target).mkdir()
            for path in paths:
                _copy(path, folder / target / path.name, "export the model again")
    _copy_sources(reproduced, folder)
    for kind, path in around.items():
        try:
            shutil.copytree(path, folder / _PASSES / kind)
        except OSError as error:  # also for several files
            message = f"{path}: cannot be read; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
    script = render_repro_script(
        spec,
        reproduced.record,
        reproduced.device,
        sample,
        reference,
        is_anonymous=reproduced.is_anonymous,
    )
    write_text(folder / "repro.py", script)
    if any(output.compare for output in spec.outputs):
        write_text(folder / _COMPARATORS.name, _COMPARATORS.read_text(encoding="utf-8"))
    root = None if reproduced.is_anonymous else reproduced.root
    readme = render_readme(
        reproduced.spec, reproduced.record, reproduced.tools, sample, root, reproduced.device
    )
    write_text(folder / "README.md", readme)
    _list_written(folder)


def write_anonymous_reproducer(
    reproduced: ReproducedCell, folder: Path, environment: Mapping[str, str], *, hashes_names: bool
) -> bool:
    """Write the folder with other weights and inputs; return whether the failure still occurs.

    Only Python files are copied. The weights and the inputs are seeded numbers with rounded
    statistics of the original ones.

    `hashes_names`: Also hash the names of modules and classes, and remove comments.

    Raises:
        ExporterError: As `write_reproducer`; ENVIRONMENT if the script fails in another way.
    """
    spec, record = reproduced.spec, reproduced.record
    if spec.is_saved:
        message = f"{record.cell}: {spec.source} contains the weights, so no other ones can be set"
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{message}; name a class as the source")
    if record.broken_pass:
        message = f"{record.cell}: the files around a pass contain the weights; omit the option"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    with tempfile.TemporaryDirectory() as scratch:
        original = Path(scratch).resolve() / "original"
        write_reproducer(reproduced, original)
        _prepare_folder(folder)
        sources = tuple(each for each in record.sources if each.file.endswith(".py"))
        hidden = {"message": "", "detail": "", "sources": sources}
        public = replace(reproduced, record=record.model_copy(update=hidden), is_anonymous=True)
        write_reproducer(public, folder)
        arguments = {
            "original": original,
            "folder": folder.absolute(),
            "sources": SOURCES,
            "samples": [DECLARED, SHOWING],
            "names": [spec.id] if hashes_names else None,
        }
        try:
            code, output = call_in_child(
                _ANONYMIZE, arguments, tuple[int, str], environment, seconds=spec.timeout
            )
        except ChildFailure as failure:
            message = f"{record.cell}: the model cannot be built without the project: {failure}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from failure
        finally:
            _list_written(folder)
    if code not in (0, 1):
        message = f"{folder}: the script needs the weights, data or names: {join_lines(output)}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return code == 1


def _read(kind: type[T], path: Path) -> T:
    value = kind.find(path, PROJECT_LIMIT)
    if value is None:
        message = f"{path}: cannot be read; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return value


def _resolve_call(reproduced: ReproducedCell) -> ModelSpec:
    """Return the contract with an explicit call that a script can create."""
    spec = reproduced.spec
    if spec.lacks_weights:
        spec = spec.model_copy(update={"weights": ""})  # the script draws the same values
    if spec.inputs_from is not None:
        resolved = _read(ModelSpec, reproduced.built.contract)
        fields = ("inputs", "constants", "containers", "axes")
        update = {name: getattr(resolved, name) for name in fields}
        spec = spec.model_copy(update={**update, "inputs_from": None})
    for each in spec.containers:
        if each.is_object and not split_reference(each.type)[0]:
            message = (
                f"{reproduced.record.cell}: a script cannot import {each.type}; "
                "move it to a path that is a module name"
            )
            raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return spec


def _prepare_folder(folder: Path) -> None:
    """Create an empty folder; remove an older reproducer, but no other files."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{folder}: is not a folder; name another one")
    if folder.exists() and any(folder.iterdir()):
        if (other := _find_other_path(folder)) is not None:
            message = f"{other}: is not as `exporter repro` wrote it; name another folder"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _list_written(folder: Path) -> None:
    hashes = {name: hash_file(folder / name) for name in _list_files(folder)}
    write_text(folder / _WRITTEN, json.dumps(hashes, indent=1) + "\n")


def _find_other_path(folder: Path) -> Path | None:
    """Return the first file of a folder that is not as a reproducer was written."""
    try:
        hashes = json.loads(read_regular_file(folder / _WRITTEN, CELL_LIMIT))
        others = (
            name
            for name in _list_files(folder)
            if (folder / name).is_symlink() or hashes.get(name) != hash_file(folder / name)
        )
        return next((folder / name for name in others), None)
    except (AttributeError, OSError, RecursionError, ValueError):
        return folder


def _list_files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        is_file = path.is_symlink() or not path.is_dir()
        if is_file and path != folder / _WRITTEN and path.parent.name != _CACHE:
            yield path.relative_to(folder).as_posix()


def _copy_sources(reproduced: ReproducedCell, folder: Path) -> None:
    for source in reproduced.record.sources:
        path = PurePosixPath(source.file)
        if split_listing(source.file) or source.state in (FOLDER, MISSING):
            continue  # only files have content
        # A record is untrusted: its paths must not leave the project.
        if path.is_absolute() or ".." in path.parts:
            message = f"{source.file}: is outside the project; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        target = folder / SOURCES / source.file
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy((reproduced.root / source.file).resolve(), target, "restore it")


def _copy(source: Path, target: Path, fix: str) -> None:
    try:
        copy_file(source, target)
    except OSError as error:
        message = f"{source}: cannot be read: {error.strerror}; {fix}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
