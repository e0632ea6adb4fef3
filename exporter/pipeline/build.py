"""Build a plan: decide, restore, schedule, execute and collect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from exporter.core.errors import ExporterError, StoppedByFailure
from exporter.core.files import read_regular_file, write_text
from exporter.core.text import join_lines, pluralize
from exporter.environments import (
    InstallationFailure,
    InstalledEnvironment,
    find_environment,
    install_environment,
    mark_as_used,
)
from exporter.manifest import Manifest, Project, Toolchain
from exporter.pipeline.build_folder import BuildFolder, StoredRecords, recover_killed_runs
from exporter.pipeline.decisions import (
    DEFAULT_OPTIONS,
    BuildOptions,
    Decisions,
    RecordValidator,
    Results,
    collect_results,
    decide,
)
from exporter.pipeline.engine import Engine
from exporter.pipeline.environments import create_environments, run_nested_export
from exporter.pipeline.schedule import estimate_costs, make_jobs, make_tasks
from exporter.pipeline.supervisor import BuildObserver, Supervisor
from exporter.planning.plan import Plan, PlannedCell
from exporter.records.record import CellId, Record, RunRecord, Status

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
            name = planned.cell.device.toolchain
            by_toolchain.setdefault(name, []).append(planned)
    for name, cells in by_toolchain.items():
        toolchain = context.project.find_toolchain(name)
        try:
            installed = _install_toolchain(context, toolchain)
        except InstallationFailure as error:
            message = f"{toolchain.location}: the toolchain {name} cannot be created: {error}"
            _write_unavailable(context, cells, join_lines(message))
            continue
        context.validator.fingerprints.forget_devices()
        try:
            _export_toolchain(context, toolchain, installed, cells)
        except ExporterError as error:
            for problem in error.problems:
                context.observer.on_note(f"toolchain {name}: {problem}")
        finally:
            context.stored.discard_toolchains()


def _install_toolchain(context: ToolchainContext, toolchain: Toolchain) -> InstalledEnvironment:
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


def _export_toolchain(
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
        _report_model(context, model, cells)

    run_nested_export(
        context.project,
        installed,
        stored.build.find_part(cells[0].cell),
        arguments,
        environment,
        handle_line,
    )


def _report_model(context: ToolchainContext, model: str, cells: Iterable[PlannedCell]) -> None:
    red = []
    for planned in cells:
        if planned.cell.model == model and (record := context.stored.get(planned.cell)):
            record = context.validator.apply_expectations(record)
            context.observer.on_cell_done(record)
            red += [record.cell] if record.status.is_red else []
    context.observer.on_model_done(model)
    if context.options.fail_fast and red:
        raise StoppedByFailure(str(red[0]))


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
        _report_model(context, model, cells)


def run_plan(
    manifest: Manifest,
    plan: Plan,
    engine: Engine,
    observer: BuildObserver,
    today: date,
    options: BuildOptions = DEFAULT_OPTIONS,
) -> Results:
    """Run the selected cells without a valid result, and collect the results of all cells.

    Each record of the build folder is read once. `StoredRecords` keeps it in memory.

    Raises:
        ExporterError: ENVIRONMENT, if workers cannot run, another run has locked the build folder,
            or a folder is a symlink.
        KeyboardInterrupt: after finished results were put in place and written to `results.json`.
        StoppedByFailure: the same, with `fail_fast` after the first model with a red cell.
    """
    build = BuildFolder.from_project(manifest.project)
    validator = RecordValidator(manifest, today)
    with build.lock():
        stored = StoredRecords(build)
        planned = {planned.cell for planned in plan.cells}
        notes = recover_killed_runs(
            stored, lambda record: record.cell in planned and validator.is_valid(record)
        )
        decisions = decide(plan, stored, validator, options)
        names = dict.fromkeys(planned.cell.model for planned in decisions.to_run)
        costs = estimate_costs({name: stored.get_model(name).by_cell for name in names})
        store = options.store if decisions.to_run or decisions.hits else None
        if store and decisions.hits:
            decisions = store.get(decisions, plan, stored, validator)
        observer.on_decisions(decisions)
        if decisions.to_run:
            options.before_wait()
        _report(observer, (*notes, *(store.take_notes() if store else ())))
        to_build = tuple(planned for planned in decisions.to_run if build.owns(planned.cell))
        try:
            if to_build:
                models = manifest.models
                if options.thorough:
                    models = tuple(m.model_copy(update={"thorough": True}) for m in models)
                devices = {planned.cell.device for planned in to_build}
                project = create_environments(manifest.project, devices, observer.on_note)
                validator.fingerprints.forget_devices()
                # A copy would keep the cached index of the other models.
                manifest = Manifest(project=project, models=models, problems=manifest.problems)
                jobs = make_jobs(
                    manifest,
                    replace(decisions, to_run=to_build),
                    build,
                    validator.fingerprints,
                )
                tasks = make_tasks(jobs, costs, build, engine.workers, options.read_sizes)
                supervisor = Supervisor(manifest, plan, stored, validator, observer, store)
                supervisor.run(engine, tasks, fail_fast=options.fail_fast)
            if len(to_build) < len(decisions.to_run):
                context = ToolchainContext(
                    project=manifest.project,
                    stored=stored,
                    validator=validator,
                    observer=observer,
                    options=options,
                    workers=engine.local_workers,
                )
                export_toolchains(context, decisions)
            _report(observer, store.finish() if store else ())
        finally:
            build.remove_misplaced_folders()
            results = collect_results(plan, stored, validator)
            _write_if_changed(results.run, build.results)
    _report(observer, _explain_lost_results(decisions, results, stored, validator))
    unchanged = not (decisions.to_run or decisions.hits)
    return replace(results, unchanged=unchanged, restored=frozenset(decisions.hits))


def _report(observer: BuildObserver, notes: Iterable[str]) -> None:
    for note in notes:
        observer.on_note(note)


def _write_if_changed(run: RunRecord, path: Path) -> None:
    """Write the results. An unchanged file keeps its timestamp, which the no-op check compares."""
    text = run.to_json()
    content = text.encode()
    try:
        is_same = read_regular_file(path, len(content)) == content
    except OSError:
        is_same = False
    if not is_same:
        write_text(path, text)


def _explain_lost_results(
    decisions: Decisions, results: Results, stored: StoredRecords, validator: RecordValidator
) -> Iterator[str]:
    """Yield one line for each reason why cells have no result although they ran."""
    reasons: dict[str, list[CellId]] = {}
    for planned in decisions.to_run:
        if planned.cell in results.missing:
            reasons.setdefault(results.missing[planned.cell], []).append(planned.cell)
    for reason, (first, *others) in reasons.items():
        cells = f"{first} and {len(others)} more" if others else first
        fix = "the next export rebuilds it"
        record = stored.get(first)
        # The worker read these states in the same run.
        if record is not None and (differences := validator.list_differences(record)):
            values = ", ".join(differences)
            fix = f"recorded as {values}; unless it changed in this run, report this as a bug"
        yield f"{cells}: no result, since {reason}; {fix}"
