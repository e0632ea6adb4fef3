"""Rehearse an upgrade: export with other packages, compare, and find the first bad release."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.api.gate_run import read_results
from exporter.commands import toolchains
from exporter.commands.toolchains.upgrade_comparison import (
    UpgradeComparison,
    compare_upgrade,
    format_record,
)
from exporter.core.device_name import CURRENT
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import join_lines
from exporter.manifest import FindingKind, Manifest, Project
from exporter.manifest.syntax.values import (
    ExporterName,
    check_version_range,
    find_requirement_name,
    is_in_range,
)
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.device_environments import (
    InstallationFailure,
    install_environment,
    list_releases,
)
from exporter.pipeline.toolchain_export import run_nested_export
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.records.record import CellId, Record, RunRecord
from exporter.virtual_environments import EnvironmentDefinition


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
    plan = make_plan(toolchains.select_suffix(manifest, CURRENT), options.selection)
    current = read_results(manifest).run
    others = (options.exporter, "file")
    selected = [
        each for each in plan.selected if not options.exporter or each.route.exporter not in others
    ]
    cells = frozenset(planned.cell for planned in selected)
    if not cells:
        message = f"--exporter: no selected cell has another exporter than {options.exporter}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    run = export_with_packages(
        manifest.project, options, [each.cell for each in selected], environment, on_line
    )
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


def export_with_packages(
    project: Project,
    options: RehearsalOptions,
    cells: Iterable[CellId],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RunRecord:
    """Export the cells with the packages of the options.

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
    builds = BuildFolder.from_project(project).path / toolchains.REHEARSALS_FOLDER
    build_folder = BuildFolder(builds / name)
    arguments = ["--no-store", f"--suffix={CURRENT}"]
    if options.jobs:
        arguments.append(f"--jobs={options.jobs}")
    if options.thorough:
        arguments.append("--thorough")
    if options.exporter:
        arguments.append(f"--exporter={options.exporter}")
    arguments += ["--", *map(str, cells)]
    return run_nested_export(project, installed, build_folder, arguments, environment, on_line)


_Records = Mapping[CellId, Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseChange:
    """Two releases, of which the later one is the first with another outcome of a cell."""

    cell: CellId
    package: str
    last: str
    """The last release with the earlier outcome."""
    first: str
    before: str
    after: str
    """The outcomes: `pass`, `error at convert`."""
    message: str
    """The message of the red record."""
    is_repaired: bool


def bisect_releases(
    manifest: Manifest,
    options: RehearsalOptions,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> tuple[ReleaseChange, ...]:
    """Return a change for each selected cell whose outcome differs between the ends.

    Raises:
        ExporterError: ENVIRONMENT if the range contains no two releases, or if one at its ends
            cannot be used. NOTHING_SELECTED if no outcome differs between the ends.
    """
    (requirement,) = options.requirements
    package = find_requirement_name(requirement)
    plan = make_plan(toolchains.select_suffix(manifest, CURRENT), options.selection)
    cells = [planned.cell for planned in plan.to_run]
    releases = _list_releases(requirement, package)
    results: dict[str, _Records] = {}

    def export(release: str) -> _Records:
        if release not in results:
            on_line(f"{package} {release}")
            current = replace(options, requirements=(f"{package}=={release}",))
            run = export_with_packages(manifest.project, current, cells, environment, on_line)
            results[release] = run.by_cell()
        return results[release]

    def find_change(cell: CellId) -> ReleaseChange:
        last, first = releases[0], releases[-1]
        was_red = _is_red(results[last], cell)
        while between := releases[releases.index(last) + 1 : releases.index(first)]:
            middle = between[len(between) // 2]
            try:
                is_same = _is_red(export(middle), cell) == was_red
            except ExporterError as error:
                on_line(f"{package} {middle} is skipped: {join_lines(str(error))}")
                releases.remove(middle)
                continue
            last, first = (middle, first) if is_same else (last, middle)
        before, after = results[last].get(cell), results[first].get(cell)
        red = before if was_red else after
        return ReleaseChange(
            cell=cell,
            package=package,
            last=last,
            first=first,
            before=format_record(before),
            after=format_record(after),
            message=red.message if red else "",
            is_repaired=was_red,
        )

    for end in (releases[0], releases[-1]):
        try:
            export(end)
        except ExporterError as error:
            message = f"{package} {end}: {error}; change the range so that this release is outside"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
    ends = (results[releases[0]], results[releases[-1]])
    changed = [cell for cell in cells if _is_red(ends[0], cell) != _is_red(ends[1], cell)]
    if not changed:
        message = (
            f"{requirement}: no selected cell differs between {releases[0]} and {releases[-1]}; "
            "select other cells or a wider range"
        )
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return tuple(find_change(cell) for cell in changed)


def _list_releases(requirement: str, package: str) -> list[str]:
    """Return the releases that meet a requirement, in ascending order.

    Raises:
        ExporterError: ENVIRONMENT, with the releases that exist.
    """
    try:
        versions = check_version_range(requirement[len(package) :].strip())
        known = list_releases(package)
    except ValueError as error:
        message = f"--bisect: {requirement}: {error}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
    except InstallationFailure as error:
        raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error
    matching = [release for release in known if is_in_range(release, versions)]
    if len(matching) < 2:
        text = f"only {matching[0]}" if matching else "none"
        message = (
            f"{requirement}: a bisect needs two releases, got {text}; "
            f"for Python {platform.python_version()} the index has {', '.join(known)}"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return matching


def _is_red(records: _Records, cell: CellId) -> bool:
    record = records.get(cell)
    return record is None or record.status.is_red
