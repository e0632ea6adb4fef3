"""The folder of a reproducer: script, README, the model's files and its frozen tensors.

In: a cell's contract and record, and its build folder. Out: the folder, fresh.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from exporter.cache.fingerprint import LISTING
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import Device, ModelSpec
from exporter.records.record import Record, Stage
from exporter.tools.repro.repro_call import split_reference
from exporter.tools.repro.script import render_readme, render_repro_script

#: In which folder of the reproducer the project's files lie, laid out as in the project.
SOURCES = "source"
#: The tensors: those that the model is exported with, and those that show the failure.
DECLARED, SHOWING = "declared", "showing"
#: All that a reproducer's folder holds.
_OWN = {SOURCES, DECLARED, SHOWING, "repro.py", "README.md"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedCell:
    """All that a reproducer is made from."""

    spec: ModelSpec
    record: Record
    device: Device
    tools: dict[str, str]
    """Versions by name."""
    root: Path
    """The project's root."""
    built: JobFolder
    """Where the model was built."""


def write_reproducer(cell: ReproducedCell, folder: Path) -> None:
    """Writes the folder anew.

    Raises:
        ExporterError: ENVIRONMENT, where `folder` holds something else or the model's tensors are
            missing; NOTHING_SELECTED, where there is nothing to reproduce without us.
    """
    if cell.record.stage is Stage.SOURCE:
        message = (
            f"{cell.record.cell}: fails before an exporter has a part in it: {cell.record.message}"
        )
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    if cell.record.route is None:
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{cell.record.cell}: was never exported")
    spec = _with_call(cell)
    reference = _reference(cell.built)
    showing = _showing(cell.record, reference)
    _make_room(folder)
    for name, sample in ((DECLARED, reference.samples[0]), (SHOWING, showing)):
        _copy_tensors(cell.built.sample(sample.index), folder / name)
    for source in cell.record.sources:
        if PurePosixPath(source.file).name == LISTING:
            continue  # names of files, and no file
        # A record is a file that anybody may have written.
        if PurePosixPath(source.file).is_absolute() or ".." in PurePosixPath(source.file).parts:
            message = f"{source.file}: lies outside the project; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        target = folder / SOURCES / source.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cell.root / source.file, target)
    script = render_repro_script(spec, cell.record, cell.device, showing, reference)
    write_text(folder / "repro.py", script)
    readme = render_readme(cell.spec, cell.record, cell.tools, showing, cell.root, cell.device)
    write_text(folder / "README.md", readme)


def _with_call(cell: ReproducedCell) -> ModelSpec:
    """The contract with its call written out, all of which a script can make."""
    spec = cell.spec
    if spec.inputs_from is not None:
        path = cell.built.contract
        try:
            made = ModelSpec.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            message = f"{path}: cannot be read; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        call = {"inputs": made.inputs, "constants": made.constants, "containers": made.containers}
        spec = spec.model_copy(update={**call, "axes": made.axes, "inputs_from": None})
    for each in spec.containers:
        if each.is_object and not split_reference(each.type)[0]:
            message = f"{cell.record.cell}: no script can import {each.type}: its path is no module"
            raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return spec


def _reference(built: JobFolder) -> Reference:
    try:
        return Reference.read(built.reference.read_bytes())
    except (OSError, ValueError) as error:
        message = f"{built.reference}: cannot be read; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def _showing(record: Record, reference: Reference) -> Sample:
    """The input set that shows the failure; the declared one where the file was never run."""
    wanted = record.blame.sample if record.blame else ""
    named = [item for item in reference.samples if item.name == wanted and not item.error]
    return (named or list(reference.samples))[0]


def _make_room(folder: Path) -> None:
    """An earlier reproducer is replaced; anything else is not ours to remove."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{folder}: is no folder")
    if folder.exists() and any(folder.iterdir()):
        names = {path.name for path in folder.iterdir()}
        if "repro.py" not in names or names - _OWN:
            message = f"{folder}: holds other files; name another folder"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _copy_tensors(sample: Path, target: Path) -> None:
    """Inputs, and outputs in float64; PyTorch's own outputs are computed by the script."""
    target.mkdir()
    for pattern in ("input_*.pb", "float64_*.pb"):
        for path in sorted(sample.glob(pattern)):
            shutil.copyfile(path, target / path.name)
    if not any(target.iterdir()):
        message = f"{sample}: holds no inputs; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
