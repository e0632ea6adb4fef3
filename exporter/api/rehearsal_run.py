"""Rehearse an upgrade: export with other packages, and compare with the results in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from exporter.api.gate_run import read_results
from exporter.core.device_name import CURRENT_TOOLCHAIN
from exporter.core.errors import ExitCode, ExporterError
from exporter.environments import EnvironmentDefinition, InstallationFailure, install_environment
from exporter.gate.finding import FindingKind
from exporter.gate.upgrade_comparison import UpgradeComparison, compare_upgrade
from exporter.manifest import Manifest, Project
from exporter.manifest.resolved.model import ExporterName
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.environments import run_nested_export
from exporter.planning import Selection
from exporter.planning.plan import PlannedCell, make_plan
from exporter.records.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalOptions:
    """The packages and the cells of a rehearsal."""

    requirements: tuple[str, ...]
    """As pip reads them: `onnxscript>=0.8`."""
    exporter: ExporterName | None = None
    """Export the cells of the other exporter by this one. None for all cells as they are."""
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

    Raises:
        ExporterError: UNREADABLE if there are no results in place. NOTHING_SELECTED. ENVIRONMENT if
            the packages cannot be installed, or the export with them fails as a whole.
    """
    # Cells of a toolchain have packages of their own.
    plan = make_plan(manifest.select_toolchain(CURRENT_TOOLCHAIN), options.selection)
    current = read_results(manifest).results.run
    selected = [planned for planned in plan.selected if _is_affected(planned, options.exporter)]
    cells = frozenset(planned.cell for planned in selected)
    if not cells:
        message = f"--exporter: no selected cell has another exporter than {options.exporter}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    if options.exporter:
        options = replace(
            options, selection=Selection(patterns=tuple(str(each.cell) for each in selected))
        )
    run = export_with_packages(manifest.project, options, environment, on_line)
    comparison = compare_upgrade(current, run, cells, manifest.project.gate)
    if options.exporter:  # each cell has another exporter, and the outcomes contain the releases
        expected = (FindingKind.REROUTED, FindingKind.FLOOR_RAISED)
        findings = tuple(each for each in comparison.findings if each.kind not in expected)
        comparison = replace(comparison, findings=findings)
    return RehearsalResult(
        run=run,
        comparison=comparison,
        without_result=len(cells - current.by_cell().keys()),
    )


def _is_affected(planned: PlannedCell, exporter: ExporterName | None) -> bool:
    return exporter is None or planned.route.exporter not in (exporter, "file")


def export_with_packages(
    project: Project,
    options: RehearsalOptions,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RunRecord:
    """Export the selected cells with the packages of the options.

    Raises:
        ExporterError: ENVIRONMENT if the packages cannot be installed, or the export fails.
    """
    definition = EnvironmentDefinition(requirements=options.requirements, adds_to_current=True)
    if options.requirements:
        on_line(f"installing {', '.join(options.requirements)}")
    try:
        installed = install_environment(definition, project.environments_folder, update=True)
    except InstallationFailure as error:
        raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error
    name = "-".join(filter(None, (installed.folder.name, options.exporter)))
    build = BuildFolder(BuildFolder.from_project(project).rehearsals / name)
    arguments = _list_arguments(options)
    return run_nested_export(project, installed, build, arguments, environment, on_line)


def _list_arguments(options: RehearsalOptions) -> list[str]:
    selection = options.selection
    arguments = ["--no-store", f"--toolchain={CURRENT_TOOLCHAIN}"]
    arguments += [f"--tag={tag}" for tag in selection.tags]
    arguments += [f"--opset={opset}" for opset in selection.opsets]
    arguments += [f"--device={device}" for device in selection.devices]
    arguments += [f"--jobs={options.jobs}"] if options.jobs else []
    arguments += ["--thorough"] if options.thorough else []
    arguments += [f"--{options.exporter}"] if options.exporter else []
    return [*arguments, "--", *selection.patterns]
