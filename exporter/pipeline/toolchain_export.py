"""Export the cells of toolchains, each in a process with the packages of its toolchain.

The environment of a toolchain is created for its first cell that runs. If that fails, its cells are
`unavailable` with the message of pip. If an export fails as a whole, its cells have no result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import join_lines, pluralize
from exporter.environments.installation import (
    STAMP,
    InstallationFailure,
    InstalledEnvironment,
    find_environment,
    install_environment,
)
from exporter.environments.inventory import mark_as_used
from exporter.manifest import Project, Toolchain
from exporter.manifest.syntax.values import CURRENT_TOOLCHAIN, split_device
from exporter.pipeline.decisions.build_results import RecordValidator
from exporter.pipeline.decisions.cell_decisions import BuildOptions, Decisions
from exporter.pipeline.environments import run_nested_export
from exporter.pipeline.execute.supervisor import BuildObserver
from exporter.pipeline.folder.stored_records import StoredRecords
from exporter.planning.plan import PlannedCell
from exporter.records.record import Record, Status

#: The beginning of the line that the export prints for each finished model.
DONE = "done: "
#: Overrides the store of the project.
_STORE_VARIABLE = "EXPORTER_STORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainContext:
    """The parts of a build that the exports with toolchains use."""

    project: Project
    stored: StoredRecords
    validator: RecordValidator
    observer: BuildObserver
    options: BuildOptions
    workers: int


def export_toolchains(context: ToolchainContext, decisions: Decisions) -> None:
    """Export the cells of each toolchain that has cells to run."""
    by_toolchain: dict[str, list[PlannedCell]] = {}
    for planned in decisions.to_run:
        if not context.stored.build.owns(planned.cell):
            name = split_device(planned.cell.device)[1]
            by_toolchain.setdefault(name, []).append(planned)
    for name, cells in by_toolchain.items():
        toolchain = context.project.find_toolchain(name)
        try:
            installed = _install(context, toolchain)
        except InstallationFailure as error:
            message = f"{toolchain.location}: the toolchain {name} cannot be created: {error}"
            _write_unavailable(context, cells, join_lines(message))
            continue
        context.validator.fingerprints.forget_devices()
        try:
            _export(context, toolchain, installed, cells)
        except ExporterError as error:
            for problem in error.problems:
                context.observer.on_note(f"toolchain {name}: {problem}")
        finally:
            context.stored.discard_toolchains()


def require_toolchain(project: Project, name: str) -> None:
    """Raise if this process lacks the packages of a toolchain.

    Raises:
        ExporterError: MANIFEST if the project has no such toolchain, else ENVIRONMENT.
    """
    if name == CURRENT_TOOLCHAIN:
        return
    try:
        toolchain = project.find_toolchain(name)
    except KeyError:
        message = f"--toolchain: no toolchain has the name '{name}'"
        raise ExporterError(ExitCode.MANIFEST, message) from None
    try:
        stamp = json.loads((Path(sys.prefix) / STAMP).read_text())
    except (OSError, ValueError):
        stamp = {}
    if stamp.get("requirements") != list(toolchain.requirements):
        message = f"--toolchain: {sys.prefix} lacks the packages of the toolchain {name}; run "
        message += "`exporter export` without --toolchain"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def _install(context: ToolchainContext, toolchain: Toolchain) -> InstalledEnvironment:
    """Return the environment of the toolchain; create it on its first use.

    Raises:
        InstallationFailure: if pip fails.
    """
    folder, definition = context.project.environments_folder, toolchain.definition
    if not find_environment(definition, folder):
        required = ", ".join(toolchain.requirements)
        context.observer.on_note(f"creating the toolchain {toolchain.name}: {required}")
    installed = install_environment(definition, folder)
    mark_as_used(installed.folder)
    return installed


def _export(
    context: ToolchainContext,
    toolchain: Toolchain,
    installed: InstalledEnvironment,
    cells: Sequence[PlannedCell],
) -> None:
    """Run the export of one toolchain and report its results.

    Raises:
        ExporterError: ENVIRONMENT if the export fails as a whole.
    """
    options, observer, stored = context.options, context.observer, context.stored
    observer.on_note(f"toolchain {toolchain.name}: exporting {pluralize(len(cells), 'cell')}")
    arguments = [f"--toolchain={toolchain.name}", f"--jobs={context.workers}"]
    arguments += ["--force"] if options.force else []
    arguments += ["--thorough"] if options.thorough else []
    environment = dict(options.environment)
    if options.store:
        environment[_STORE_VARIABLE] = str(options.store.path)
    else:
        arguments.append("--no-store")
    arguments += ["--", *(str(planned.cell) for planned in cells)]

    def handle_line(line: str) -> None:
        if not line.startswith(DONE):
            observer.on_note(f"toolchain {toolchain.name}: {line}")
            return
        model = line.removeprefix(DONE)
        stored.discard_toolchains()
        _report(context, model, cells)

    run_nested_export(
        context.project,
        installed,
        stored.build.find_part(cells[0].cell),
        arguments,
        environment,
        handle_line,
    )


def _report(context: ToolchainContext, model: str, cells: Iterable[PlannedCell]) -> None:
    """Report the results of a finished model."""
    for planned in cells:
        if planned.cell.model == model and (record := context.stored.get(planned.cell)):
            context.observer.on_cell_done(context.validator.apply_expectations(record))
    context.observer.on_model_done(model)


def _write_unavailable(
    context: ToolchainContext, cells: Sequence[PlannedCell], message: str
) -> None:
    """Store and report that the toolchain of these cells cannot be installed."""
    context.observer.on_note(message)
    for planned in cells:
        record = Record(
            cell=planned.cell,
            status=Status.UNAVAILABLE,
            message=message,
            route=planned.route,
            fingerprint=context.validator.fingerprints.get_cell_parts(planned.cell),
        )
        context.stored.write_to_toolchain(record)
    for model in dict.fromkeys(planned.cell.model for planned in cells):
        _report(context, model, cells)
