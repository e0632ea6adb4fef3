"""Rehearse an upgrade: export with other packages, and compare with the results in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.api.gate_run import read_results
from exporter.core.device_name import CURRENT_TOOLCHAIN
from exporter.core.errors import ExitCode, ExporterError
from exporter.environments import (
    EnvironmentDefinition,
    InstallationFailure,
    InstalledEnvironment,
    install_environment,
)
from exporter.gate import UpgradeComparison, compare_upgrade
from exporter.manifest import Manifest
from exporter.pipeline import BuildFolder
from exporter.pipeline.environments import run_nested_export
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.records.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalOptions:
    """The packages and the cells of a rehearsal."""

    requirements: tuple[str, ...]
    """As pip reads them: `onnxscript>=0.8`."""
    selection: Selection
    jobs: int | None = None
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalResult:
    """The results of a rehearsal and the differences from those in place."""

    run: RunRecord
    comparison: UpgradeComparison
    without_result: int
    """The number of selected cells without a valid result in place."""


def rehearse(
    manifest: Manifest,
    options: RehearsalOptions,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RehearsalResult:
    """Export the selected cells with other packages, and compare the results.

    Args:
        manifest: The project.
        options: The packages and the cells.
        environment: The environment variables.
        on_line: Receives the progress.

    Raises:
        ExporterError: UNREADABLE if there are no results in place. NOTHING_SELECTED. ENVIRONMENT if
            the packages cannot be installed, or the export with them fails as a whole.
    """
    # Cells of a toolchain have packages of their own.
    plan = make_plan(manifest.select_toolchain(CURRENT_TOOLCHAIN), options.selection)
    current = read_results(manifest).results.run
    build = BuildFolder.from_project(manifest.project)
    on_line(f"installing {', '.join(options.requirements)}")
    installed = _install(options, manifest.project.environments_folder)
    rehearsed = BuildFolder(build.rehearsals / installed.folder.name)
    arguments = _list_arguments(options)
    run = run_nested_export(manifest.project, installed, rehearsed, arguments, environment, on_line)
    cells = frozenset(planned.cell for planned in plan.selected)
    return RehearsalResult(
        run=run,
        comparison=compare_upgrade(current, run, cells, manifest.project.gate),
        without_result=len(cells - current.by_cell().keys()),
    )


def _install(options: RehearsalOptions, folder: Path) -> InstalledEnvironment:
    definition = EnvironmentDefinition(requirements=options.requirements, adds_to_current=True)
    try:
        return install_environment(definition, folder, update=True)
    except InstallationFailure as error:
        raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error


def _list_arguments(options: RehearsalOptions) -> list[str]:
    """Return the arguments of the export with the other packages."""
    selection = options.selection
    arguments = ["--no-store", f"--toolchain={CURRENT_TOOLCHAIN}"]
    arguments += [f"--tag={tag}" for tag in selection.tags]
    arguments += [f"--opset={opset}" for opset in selection.opsets]
    arguments += [f"--device={device}" for device in selection.devices]
    arguments += [f"--jobs={options.jobs}"] if options.jobs else []
    arguments += ["--thorough"] if options.thorough else []
    return [*arguments, "--", *selection.patterns]
