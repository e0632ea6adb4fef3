"""The folder of a reproducer: script, README, the model's files and its frozen tensors."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from exporter.cache.states import ALL_FILES, FOLDER, LISTING, MISSING
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT, PROJECT_LIMIT, read_regular_file, write_text
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import Device, ModelSpec
from exporter.records.record import Record
from exporter.report.rows.failures import find_repro_obstacle
from exporter.tools.repro.script import (
    RUNTIMES,
    render_readme,
    render_repro_script,
    split_reference,
)

#: The folder with the project's files, at the same relative paths as in the project.
SOURCES = "source"
#: The tensors for the export, and those that show the failure.
DECLARED, SHOWING = "declared", "showing"
#: It needs numpy only; this process does not import it.
_COMPARATORS = Path(__file__).parents[2] / "checks" / "comparison" / "comparators.py"
#: All names in a reproducer's folder.
_NAMES = {SOURCES, DECLARED, SHOWING, "repro.py", "README.md", "comparators.py"}


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


def write_reproducer(cell: ReproducedCell, folder: Path) -> None:
    """Write the folder, in place of an older reproducer.

    Raises:
        ExporterError: ENVIRONMENT if `folder` contains other files or the model's tensors are
            missing; NOTHING_SELECTED if the failure needs this tool.
    """
    if reason := _find_obstacle(cell):
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{cell.record.cell}: {reason}")
    spec = _resolve_call(cell)
    try:
        reference = Reference.read(read_regular_file(cell.built.reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        message = f"{cell.built.reference}: cannot be read; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
    name = cell.record.blame.sample if cell.record.blame else ""
    failing = [item for item in reference.samples if item.name == name and not item.error]
    sample = (failing or list(reference.samples))[0]
    _prepare_folder(folder)
    for target, source in ((DECLARED, reference.samples[0]), (SHOWING, sample)):
        _copy_tensors(cell.built.sample(source.index), folder / target)
    _copy_sources(cell, folder)
    script = render_repro_script(spec, cell.record, cell.device, sample, reference)
    write_text(folder / "repro.py", script)
    if any(output.compare for output in spec.outputs):
        write_text(folder / _COMPARATORS.name, _COMPARATORS.read_text(encoding="utf-8"))
    readme = render_readme(cell.spec, cell.record, cell.tools, sample, cell.root, cell.device)
    write_text(folder / "README.md", readme)


def _find_obstacle(cell: ReproducedCell) -> str:
    """Return the reason why no script can show the failure, "" if one can."""
    if reason := find_repro_obstacle(cell.record):
        return reason
    if cell.device.runtime not in RUNTIMES:
        return f"a script cannot use the plugin runtime '{cell.device.runtime}'"
    return ""


def _resolve_call(cell: ReproducedCell) -> ModelSpec:
    """Return the contract with an explicit call that a script can create."""
    spec = cell.spec
    if spec.inputs_from is not None:
        path = cell.built.contract
        try:
            resolved = ModelSpec.model_validate_json(read_regular_file(path, CELL_LIMIT))
        except (OSError, ValueError) as error:
            message = f"{path}: cannot be read; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        fields = ("inputs", "constants", "containers", "axes")
        update = {name: getattr(resolved, name) for name in fields}
        spec = spec.model_copy(update={**update, "inputs_from": None})
    for each in spec.containers:
        if each.is_object and not split_reference(each.type)[0]:
            message = (
                f"{cell.record.cell}: a script cannot import {each.type}; "
                "move it to a path that is a module name"
            )
            raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return spec


def _prepare_folder(folder: Path) -> None:
    """Create an empty folder; remove an older reproducer, but no other files."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{folder}: is not a folder; name another one")
    if folder.exists() and any(folder.iterdir()):
        names = {path.name for path in folder.iterdir()}
        if "repro.py" not in names or names - _NAMES:
            message = f"{folder}: contains other files; name another folder"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _copy_sources(cell: ReproducedCell, folder: Path) -> None:
    for source in cell.record.sources:
        path = PurePosixPath(source.file)
        if path.name in (LISTING, ALL_FILES) or source.state in (FOLDER, MISSING):
            continue  # only files have content
        # A record is untrusted: its paths must not leave the project.
        if path.is_absolute() or ".." in path.parts:
            message = f"{source.file}: is outside the project; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        target = folder / SOURCES / source.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cell.root / source.file, target)


def _copy_tensors(sample: Path, target: Path) -> None:
    """Copy inputs and float64 outputs; the script computes PyTorch's own outputs."""
    target.mkdir()
    for pattern in ("input_*.pb", "float64_*.pb"):
        for path in sorted(sample.glob(pattern)):
            shutil.copyfile(path, target / path.name)
    if not any(target.iterdir()):
        message = f"{sample}: contains no inputs; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
