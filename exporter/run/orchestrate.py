"""From a plan to records: one job per model, retries after crashes, folders put into place.

In: a manifest, a plan and an engine. Out: `build/<model>/` for each selected model,
`build/results.json`, and calls of a `Watcher` meanwhile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Protocol

from exporter.engine import Ended, Engine, Outcome, Task
from exporter.errors import ExitCode, ExporterError
from exporter.files import write_text
from exporter.fingerprint import THOROUGH
from exporter.job import Announcement, Job, JobFolder, OpsetJob, write_value
from exporter.manifest import Manifest, Project
from exporter.plan import Plan, PlannedCell
from exporter.record import Record, RunRecord
from exporter.run.decide import NO_WISH, Decisions, Wish, decide, made_after_all
from exporter.run.flaky import mark_flaky
from exporter.run.folders import BuildFolder, Stored, carry_over, drop_unproved, mend
from exporter.run.keep import Keeper
from exporter.run.recover import recover
from exporter.run.restore import Holding, restore
from exporter.run.results import Judge, Results, collect
from exporter.run.verdict import job_for, log_tail, settle
from exporter.store import Store


class Watcher(Protocol):
    """Is told what happens, to show it."""

    def decided(self, decisions: Decisions) -> None:
        """These cells run, for these reasons; told once, before all else."""

    def at_work(self, announcement: Announcement) -> None:
        """These cells are at this stage now."""

    def judged(self, record: Record) -> None:
        """This cell is done; the record is as it counts."""

    def done(self, model: str) -> None:
        """Everything of the model is in place."""

    def noted(self, message: str) -> None:
        """Something that a person may want to know."""


def run_plan(
    manifest: Manifest,
    plan: Plan,
    engine: Engine,
    watcher: Watcher,
    today: date,
    wish: Wish = NO_WISH,
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
    build = BuildFolder.of(manifest.project)
    judge = Judge(manifest, today)
    with build.locked():
        planned = {str(planned.cell) for planned in plan.cells}
        notes = recover(build, lambda r: str(r.cell) in planned and judge.holds(r))
        stored = Stored(build)
        decisions = decide(plan, stored, judge, wish)
        if wish.store and decisions.hits:
            tasks = tasks_of(manifest, _of_hits(decisions, plan), build, judge)
            problems = _take(wish.store, tasks, decisions, build, _holding(plan, judge))
            decisions = made_after_all(decisions, plan, problems)
            stored = Stored(build)
        watcher.decided(decisions)
        for note in notes:
            watcher.noted(note)
        try:
            if decisions.to_run:
                tasks = tasks_of(_wished(manifest, wish), decisions, build, judge)
                stored = Stored(build)  # to be read when they are done
                keeper = Keeper(manifest, today, wish.store)
                engine.run(tasks, Supervisor(manifest, plan, build, judge, watcher, keeper))
                keeper.tidy()
        finally:
            results = collect(plan, stored, judge)
            _keep(results.run, build.results)
    for note in _run_in_vain(decisions, results):
        watcher.noted(note)
    stood = not (decisions.to_run or decisions.hits)
    return replace(results, stood=stood, taken=frozenset(decisions.hits))


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
    store: Store, tasks: Iterable[Task], decisions: Decisions, build: BuildFolder, holding: Holding
) -> dict[str, str]:
    """Puts what the store has into place; the answer is why a cell has to be made after all."""
    problems: dict[str, str] = {}
    for task in tasks:
        problems |= restore(task.job, decisions.hits, store, build, holding)
    return problems


def _holding(plan: Plan, judge: Judge) -> Holding:
    """What of the build folder stays beside the store's cells."""
    promised = {str(planned.cell) for planned in plan.cells}
    return Holding(
        fully=lambda r: str(r.cell) in promised and judge.holds(r),
        for_its_file=lambda r: str(r.cell) in promised and judge.only_checks_changed(r),
    )


def _wished(manifest: Manifest, wish: Wish) -> Manifest:
    """The manifest as its jobs see it; what is judged later is the manifest as it stands."""
    if not wish.thorough:
        return manifest
    models = tuple(spec.model_copy(update={"thorough": True}) for spec in manifest.models)
    return Manifest(project=manifest.project, models=models)


def tasks_of(
    manifest: Manifest, decisions: Decisions, build: BuildFolder, judge: Judge
) -> list[Task]:
    """One task for each model with cells to run, in a fresh folder.

    What took longest the last time comes first, so that no long job is left over for the end; what
    was never made comes before that, in the manifests' order.
    """
    tasks = []
    for model, cells in groupby(decisions.to_run, key=lambda planned: planned.cell.model):
        spec = manifest.model(model)
        thorough = {THOROUGH: "yes"} if spec.thorough else {}
        job = Job(
            spec=spec,
            root=manifest.project.root,
            build=str(build.path),
            folder=str(build.fresh(model).path),
            opsets=_opset_jobs(manifest.project, cells, decisions.rechecked),
            fingerprint=judge.parts.model(model) | thorough,
            device_digests={name: judge.parts.device(name) for name in spec.devices},
        )
        tasks.append(Task(job=job, seconds=spec.timeout))
    known = decisions.seconds
    return sorted(tasks, key=lambda task: -known.get(task.job.spec.id, math.inf))


class Supervisor:
    """Listens to the engine: settles cells, sends others again, puts folders into place."""

    def __init__(
        self,
        manifest: Manifest,
        plan: Plan,
        build: BuildFolder,
        judge: Judge,
        watcher: Watcher,
        keeper: Keeper,
    ) -> None:
        self._project = manifest.project
        self._planned = {str(planned.cell) for planned in plan.cells}
        self._selected = {str(planned.cell): planned for planned in plan.to_run}
        self._build = build
        self._judge = judge
        self._watcher = watcher
        self._keeper = keeper
        self._told: set[str] = set()
        self._spent: Counter[str] = Counter()

    def at_work(self, announcement: Announcement) -> None:
        """The worker is about to do this."""
        self._watcher.at_work(announcement)

    def recorded(self, record: Record) -> None:
        """The worker has finished a cell and gone on to another."""
        self._tell(record)

    def ended(self, outcome: Outcome) -> Task | None:
        """Settles what the end of the job says; the answer is the job for the cells left over.

        Raises:
            ExporterError: ENVIRONMENT, where the worker found that it cannot work here.
        """
        _refuse_environment(outcome)
        job = outcome.job
        folder = JobFolder(Path(job.folder))
        mend(folder)
        verdict = settle(outcome, folder.read_records())
        for cell in job.cells():
            if record := verdict.settled.get(str(cell)):
                write_value(folder.record(cell), record)
                self._tell(record)
            else:
                folder.record(cell).unlink(missing_ok=True)
        self._spent[job.spec.id] += math.ceil(outcome.seconds)
        if verdict.retry:
            left = max(job.spec.timeout - self._spent[job.spec.id], 1.0)
            return Task(job=job_for(job, verdict.retry), seconds=left)
        return self._finish(job, folder, interrupted=outcome.ended is Ended.INTERRUPTED)

    def _tell(self, record: Record) -> None:
        if str(record.cell) not in self._told:
            self._told.add(str(record.cell))
            self._watcher.judged(self._judge.judged(record))

    def _finish(self, job: Job, folder: JobFolder, *, interrupted: bool) -> Task | None:
        """Puts the folder into place; the answer is a job for what cannot be kept beside it."""
        model = job.spec.id
        if not folder.read_records():
            return None  # interrupted before its first cell: what is in place stays
        drop_unproved(folder)
        mark_flaky(self._build.model(model), folder)
        made = tuple(folder.read_records().values())
        lost = [
            str(record.cell) for record in carry_over(self._build.model(model), folder, self._holds)
        ]
        again = [self._selected[name] for name in lost if name in self._selected]
        if again and not interrupted:
            left = max(job.spec.timeout - self._spent[model], 1.0)
            opsets = _opset_jobs(self._project, again)
            return Task(job=job.model_copy(update={"opsets": opsets}), seconds=left)
        dropped = [name for name in lost if name in self._planned]
        if dropped:
            self._watcher.noted(
                f"{model}: {len(dropped)} earlier results no longer hold and were dropped"
            )
        self._build.place(model, folder, self._keeper.take_over)
        if note := self._keeper.keep(made, self._build.model(model)):
            self._watcher.noted(note)
        self._watcher.done(model)
        return None

    def _holds(self, record: Record) -> bool:
        return str(record.cell) in self._planned and self._judge.holds(record)


def _opset_jobs(
    project: Project, cells: Iterable[PlannedCell], rechecked: frozenset[str] = frozenset()
) -> tuple[OpsetJob, ...]:
    jobs = []
    for (opset, route), group in groupby(cells, key=lambda p: (p.cell.opset, p.route)):
        ids = [planned.cell for planned in group]
        job = OpsetJob(
            opset=opset,
            route=route,
            devices=tuple(project.device(cell.device) for cell in ids),
            is_there=all(str(cell) in rechecked for cell in ids),
        )
        jobs.append(job)
    return tuple(jobs)


def _refuse_environment(outcome: Outcome) -> None:
    unusable = outcome.ended is Ended.EXITED and outcome.code == ExitCode.ENVIRONMENT
    # A model may exit with any code; the environment is checked before anything is announced.
    if unusable and outcome.at_work is None:
        lines = log_tail(outcome.job, None).splitlines()
        raise ExporterError(ExitCode.ENVIRONMENT, lines[-1] if lines else "workers cannot start")
