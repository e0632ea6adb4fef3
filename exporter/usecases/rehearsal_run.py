"""Rehearse an upgrade: export with other packages, and compare with the results in place.

Input: a manifest and `RehearsalOptions`. Output: a `RehearsalResult`. The results are in a build
folder of their own. Nothing of the project changes unless the rehearsal is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.build import BuildFolder
from exporter.core.errors import ExitCode, ExporterError
from exporter.environments.definition import EnvironmentDefinition
from exporter.environments.installation import (
    InstallationFailure,
    InstalledEnvironment,
    install_environment,
)
from exporter.gate import UpgradeComparison, compare_upgrade
from exporter.manifest import Manifest
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.processes.program import run_program
from exporter.records.record import RunRecord, read_run
from exporter.records.rehearsal import make_rehearsal, write_rehearsal
from exporter.usecases.current_results import read_results
from exporter.usecases.report_pages import ReportPaths, write_reports


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalOptions:
    """The packages and the cells of a rehearsal."""

    requirements: tuple[str, ...]
    """As pip reads them: `onnxscript>=0.8`."""
    selection: Selection
    jobs: int | None = None
    thorough: bool = False
    keep: str = ""
    """The name of its column in the tables; empty if it is not kept."""


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
    plan = make_plan(manifest, options.selection)
    current = read_results(manifest).results.run
    build = BuildFolder.from_project(manifest.project)
    on_line(f"installing {', '.join(options.requirements)}")
    installed = _install(options, manifest.project.environments_folder)
    rehearsed = BuildFolder(build.rehearsals / installed.folder.name)
    _export(manifest, options, installed, rehearsed, environment, on_line)
    run = read_run(rehearsed.results)
    _require_versions(run, installed)
    cells = frozenset(planned.cell for planned in plan.selected)
    in_place = current.by_cell()
    if options.keep:
        selected = tuple(record for record in run.records if record.cell in cells)
        selected_run = RunRecord(tools=run.tools, records=selected)
        rehearsal = make_rehearsal(options.requirements, selected_run, in_place)
        write_rehearsal(ReportPaths(manifest.project).reports, options.keep, rehearsal)
        write_reports(manifest, current)
    return RehearsalResult(
        run=run,
        comparison=compare_upgrade(current, run, cells, manifest.project.gate),
        without_result=len(cells - in_place.keys()),
    )


def _install(options: RehearsalOptions, folder: Path) -> InstalledEnvironment:
    definition = EnvironmentDefinition(requirements=options.requirements, adds_to_current=True)
    try:
        return install_environment(definition, folder, update=True)
    except InstallationFailure as error:
        raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error


def _export(
    manifest: Manifest,
    options: RehearsalOptions,
    installed: InstalledEnvironment,
    build: BuildFolder,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> None:
    """Run `exporter export` of the other environment.

    Raises:
        ExporterError: ENVIRONMENT if it did not export all selected cells.
    """
    selection = options.selection
    arguments = ["--root", manifest.project.root, "--build", str(build.path), "--no-store"]
    arguments += [f"--tag={tag}" for tag in selection.tags]
    arguments += [f"--opset={opset}" for opset in selection.opsets]
    arguments += [f"--device={device}" for device in selection.devices]
    arguments += [f"--jobs={options.jobs}"] if options.jobs else []
    arguments += ["--thorough"] if options.thorough else []
    command = [str(installed.python), "-P", "-m", "exporter", "export", *arguments]
    code = run_program([*command, "--", *selection.patterns], environment, on_line)
    if code not in (ExitCode.OK, ExitCode.RED):
        message = f"the export with the other packages exited with code {code}; see its output"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def _require_versions(run: RunRecord, installed: InstalledEnvironment) -> None:
    """Raise if the export used other versions than those of the environment.

    Otherwise a variable such as `PYTHONPATH` could hide the upgrade, and nothing would differ.

    Raises:
        ExporterError: ENVIRONMENT, with the versions.
    """
    problems = [
        f"{name} {run.tools[name]} instead of {version}"
        for name, version in installed.packages.items()
        if run.tools.get(name, version) != version
    ]
    if problems:
        message = (
            f"the export used {', '.join(problems)}; remove the other versions from PYTHONPATH"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
