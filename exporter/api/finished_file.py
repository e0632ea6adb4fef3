"""Prove a finished file against an entry of the project, without a change of the project.

The entry gets the file as its `artifact` and a temporary build folder, so every check of an export
applies. PyTorch computes the expected outputs from the source of the entry.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.manifest import Manifest, ModelSpec, Project
from exporter.manifest.resolved.keys import NO_STORE
from exporter.pipeline.engine import LocalEngine
from exporter.pipeline.required_packages import require_packages
from exporter.pipeline.supervisor import BuildObserver
from exporter.planning.plan import make_plan
from exporter.processes import ProcessStarter
from exporter.program import run_plan
from exporter.records.record import Record


def find_entry(manifest: Manifest, name: str) -> ModelSpec:
    """Return the entry of that ID.

    Raises:
        ExporterError: NOTHING_SELECTED if it does not exist; MANIFEST if it is invalid.
    """
    spec = next((model for model in manifest.models if model.id == name), None)
    if spec is None:
        hint = suggest_nearest(name, [model.id for model in manifest.models])
        message = f"--entry: no model has the ID '{name}'{hint}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    if spec.problems:
        raise ExporterError(ExitCode.MANIFEST, "\n".join(spec.problems))
    return spec


def make_finished_entry(
    spec: ModelSpec, path: Path, opset: int, devices: Sequence[str]
) -> ModelSpec:
    """Return the promises of an entry for a file; without devices, those of the entry run it.

    The entry's own exporter, expectations and skipped cells do not apply.
    """
    update: dict[str, object] = {
        "artifact": str(path.resolve()),
        "chain": (),  # the file is the whole, such as a merged one
        "opsets": (opset,),
        "expect": (),
        "skip": (),
    }
    if devices:
        update["devices"] = tuple(map(DeviceName, devices))
    return spec.model_copy(update=update)


def prove_specs(
    project: Project, specs: Sequence[ModelSpec], starter: ProcessStarter
) -> tuple[Record, ...]:
    """Return one record for each cell of entries, from a temporary build folder.

    A chain needs its links among them.

    Raises:
        ExporterError: ENVIRONMENT if PyTorch or another package is missing.
    """
    with tempfile.TemporaryDirectory(prefix="exporter-verify-") as folder:
        return prove_in(folder, project, specs, starter)


def prove_in(
    folder: str, project: Project, specs: Sequence[ModelSpec], starter: ProcessStarter
) -> tuple[Record, ...]:
    """Return one record for each cell of entries, whose files and samples are in a build folder.

    A chain needs its links among them.

    Raises:
        ExporterError: ENVIRONMENT if PyTorch or another package is missing.
    """
    require_packages()
    project = project.model_copy(update={"build": folder, "store": NO_STORE})
    manifest = Manifest(project=project, models=tuple(specs))
    plan = make_plan(manifest)
    engine = LocalEngine(1, starter)
    results = run_plan(manifest, plan, engine, BuildObserver())
    by_cell = results.run.by_cell()
    missing = [cell for planned in plan.cells if (cell := planned.cell) not in by_cell]
    if missing:
        reason = results.missing.get(missing[0], "the worker wrote no record")
        raise ExporterError(ExitCode.UNREADABLE, f"{missing[0]}: no result, since {reason}")
    return tuple(by_cell[planned.cell] for planned in plan.cells)
