"""From a plan to records: what has to run is decided, run and collected.

In: a manifest, a plan and an engine. Out: `build/<model>/` for each selected model,
`build/results.json`, and calls of a `BuildObserver` meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from exporter.build.decisions.build_results import RecordValidator, Results, collect_results
from exporter.build.decisions.cell_decisions import (
    DEFAULT_OPTIONS,
    BuildOptions,
    Decisions,
    add_failed_restores,
    decide,
)
from exporter.build.decisions.store_reader import RetentionRules, restore
from exporter.build.decisions.store_writer import StoreWriter
from exporter.build.engine import Engine
from exporter.build.execute.supervisor import BuildObserver, Supervisor
from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.recovery import recover_killed_runs
from exporter.build.folder.stored_records import StoredRecords
from exporter.build.schedule.cost import estimate_costs
from exporter.build.schedule.tasks import make_jobs, make_tasks
from exporter.cache.store import Store
from exporter.core.atomic_files import write_text
from exporter.jobs.job import Job
from exporter.manifest import Manifest
from exporter.planning.plan import Plan
from exporter.records.record import RunRecord


def run_plan(
    manifest: Manifest,
    plan: Plan,
    engine: Engine,
    watcher: BuildObserver,
    today: date,
    wish: BuildOptions = DEFAULT_OPTIONS,
) -> Results:
    """Runs the selected cells without a result that still holds; collects the records of all.

    Args:
        manifest: The project.
        plan: Which of its cells are selected.
        engine: Runs the jobs.
        watcher: Is told of each step.
        today: The date by which expectations end.
        wish: What is asked for beyond that.

    Raises:
        ExporterError: ENVIRONMENT, where workers cannot work here, another run is at work, or a
            link stands where a folder belongs.
        KeyboardInterrupt: after what is done was put into place and written to `results.json`.
    """
    build = BuildFolder.from_project(manifest.project)
    judge = RecordValidator(manifest, today)
    with build.lock():
        planned = {str(planned.cell) for planned in plan.cells}
        notes = recover_killed_runs(build, lambda r: str(r.cell) in planned and judge.holds(r))
        stored = StoredRecords(build)
        decisions = decide(plan, stored, judge, wish)
        models = dict.fromkeys(planned.cell.model for planned in decisions.to_run)
        costs = estimate_costs({model: stored.get_model(model) for model in models})
        if wish.store and decisions.hits:
            jobs = make_jobs(manifest, _of_hits(decisions, plan), build, judge)
            problems = _take(wish.store, jobs, decisions, build, _holding(plan, judge))
            decisions = add_failed_restores(decisions, plan, problems)
            stored = StoredRecords(build)
        watcher.on_decisions(decisions)
        for note in notes:
            watcher.on_note(note)
        try:
            if decisions.to_run:
                jobs = make_jobs(_wished(manifest, wish), decisions, build, judge)
                tasks = make_tasks(jobs, costs, build, engine.workers)
                stored = StoredRecords(build)  # to be read when they are done
                keeper = StoreWriter(manifest, today, wish.store)
                Supervisor(manifest, plan, build, judge, watcher, keeper).run(engine, tasks)
                keeper.evict_if_needed()
        finally:
            results = collect_results(plan, stored, judge)
            _keep(results.run, build.results)
    for note in _run_in_vain(decisions, results):
        watcher.on_note(note)
    stood = not (decisions.to_run or decisions.hits)
    return replace(results, unchanged=stood, restored=frozenset(decisions.hits))


def _run_in_vain(decisions: Decisions, results: Results) -> Iterator[str]:
    """Why cells that were run have no result all the same, in a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for planned in decisions.to_run:
        if (name := str(planned.cell)) in results.missing:
            reasons.setdefault(results.missing[name], []).append(name)
    for why, (first, *others) in reasons.items():
        cells = f"{first} and {len(others)} more" if others else first
        yield f"{cells}: no result, since {why}; the next export makes it again"


def _keep(run: RunRecord, path: Path) -> None:
    """Writes what was found, unless it stands there: what was not written has not changed."""
    text = run.to_json()
    try:
        stands = not path.is_symlink() and path.read_bytes() == text.encode()
    except OSError:
        stands = False
    if not stands:
        write_text(path, text)


def _of_hits(decisions: Decisions, plan: Plan) -> Decisions:
    """What would have to run if the store's cells were made."""
    to_run = tuple(planned for planned in plan.to_run if str(planned.cell) in decisions.hits)
    return replace(decisions, to_run=to_run)


def _take(
    store: Store,
    jobs: Iterable[Job],
    decisions: Decisions,
    build: BuildFolder,
    holding: RetentionRules,
) -> dict[str, str]:
    """Puts what the store has into place; the answer is why a cell has to be made after all."""
    problems: dict[str, str] = {}
    for job in jobs:
        problems |= restore(job, decisions.hits, store, build, holding)
    return problems


def _holding(plan: Plan, judge: RecordValidator) -> RetentionRules:
    """What of the build folder stays beside the store's cells."""
    promised = {str(planned.cell) for planned in plan.cells}
    return RetentionRules(
        fully=lambda r: str(r.cell) in promised and judge.holds(r),
        for_its_file=lambda r: str(r.cell) in promised and judge.has_only_check_changes(r),
    )


def _wished(manifest: Manifest, wish: BuildOptions) -> Manifest:
    """The manifest as its jobs see it; what is judged later is the manifest as it stands."""
    if not wish.thorough:
        return manifest
    models = tuple(spec.model_copy(update={"thorough": True}) for spec in manifest.models)
    return Manifest(project=manifest.project, models=models)
