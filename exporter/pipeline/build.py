"""Build a plan: decide, restore, schedule, execute and collect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from exporter.cache.store import Store
from exporter.core.files import read_regular_file, write_text
from exporter.manifest import Manifest
from exporter.pipeline.decisions.build_results import RecordValidator, Results, collect_results
from exporter.pipeline.decisions.cell_decisions import (
    DEFAULT_OPTIONS,
    BuildOptions,
    Decisions,
    add_failed_restores,
    decide,
)
from exporter.pipeline.decisions.store_transfer import RetentionRules, StoreWriter, restore
from exporter.pipeline.engine import Engine
from exporter.pipeline.environments import create_environments
from exporter.pipeline.execute.supervisor import BuildObserver, Supervisor
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.pipeline.folder.maintenance import recover_killed_runs
from exporter.pipeline.folder.stored_records import StoredRecords
from exporter.pipeline.schedule import estimate_costs, make_jobs, make_tasks
from exporter.pipeline.toolchain_export import ToolchainContext, export_toolchains
from exporter.planning.plan import Plan
from exporter.records.record import CellId, Record, RunRecord


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

    Args:
        manifest: The project.
        plan: The selected cells.
        engine: Runs the jobs.
        observer: Receives the progress.
        today: The date for expectations.
        options: The options of the build.

    Raises:
        ExporterError: ENVIRONMENT, if workers cannot run, another run has locked the build folder,
            or a folder is a symlink.
        KeyboardInterrupt: after finished results were put in place and written to `results.json`.
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
            decisions = _restore_hits(manifest, plan, store, stored, validator, decisions)
        observer.on_decisions(decisions)
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
                writer = StoreWriter(manifest, today, store)
                Supervisor(manifest, plan, stored, validator, observer, writer).run(engine, tasks)
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


def _restore_hits(
    manifest: Manifest,
    plan: Plan,
    store: Store,
    stored: StoredRecords,
    validator: RecordValidator,
    decisions: Decisions,
) -> Decisions:
    """Restore cells from the store. Return the decisions with a run for each failure."""
    planned = {planned.cell for planned in plan.cells}

    def has_valid_file(record: Record) -> bool:
        return record.cell in planned and validator.has_only_check_changes(record)

    def is_valid(record: Record) -> bool:
        return record.cell in planned and validator.is_valid(record)

    rules = RetentionRules(is_valid=is_valid, has_valid_file=has_valid_file)
    to_restore = tuple(each for each in plan.to_run if each.cell in decisions.hits)
    restores = replace(decisions, to_run=to_restore)
    problems: dict[CellId, str] = {}
    store.download([hit.entry for hit in decisions.hits.values()])
    for job in make_jobs(manifest, restores, stored.build, validator.fingerprints):
        problems |= restore(job, decisions.hits, store, stored, rules)
    return add_failed_restores(decisions, plan, problems)


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
