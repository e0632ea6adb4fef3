"""The way from a manifest to the tables: read, select, decide, prove, record, report.

`export` has the way on one screen, and `run_plan` the part of it that holds the build folder. The
last step, `exporter gate`, reads the results that they write: `exporter.api.gate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from exporter.cache.states import have_tools_changed
from exporter.core.errors import RESULTS_NOTE, ExporterError, StoppedByFailure
from exporter.core.files import read_regular_file, write_text
from exporter.export_options import ExportOptions, make_engine
from exporter.manifest import Manifest, Project, load_layers
from exporter.pipeline.build_folder import BuildFolder, StoredRecords, recover_killed_runs
from exporter.pipeline.decisions import (
    DEFAULT_OPTIONS,
    BuildOptions,
    Decisions,
    RecordValidator,
    Results,
    StoreStatistics,
    collect_results,
    decide,
)
from exporter.pipeline.device_environments import create_environments
from exporter.pipeline.engine import Engine, Task, end_jobs
from exporter.pipeline.noop_snapshot import (
    Moment,
    NoopInputs,
    collect_inputs,
    observe_project,
    read_filesystem_clock,
    read_next_tick,
)
from exporter.pipeline.required_packages import require_packages
from exporter.pipeline.schedule import Cost, estimate_costs, make_jobs, make_tasks
from exporter.pipeline.shard_note import write_shard_note
from exporter.pipeline.supervisor import Build, BuildObserver, Proof, Supervisor
from exporter.pipeline.toolchain_export import export_parts
from exporter.planning.plan import (
    Plan,
    Shard,
    add_links,
    make_plan,
)
from exporter.processes import ProcessStarter
from exporter.records.baseline import read_baseline
from exporter.records.record import CellId, RunRecord
from exporter.report.pages.markdown import preload_pages
from exporter.report.reports_folder import (
    ReportPaths,
    are_pages_unmodified,
    list_page_inputs,
    list_pages,
    write_reports,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noop:
    """An export after which every cell of the project is up to date."""

    inputs: NoopInputs
    since: Moment
    """A time before the first input was read."""
    checked: Moment
    """A time before the outputs were compared with their records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The results of an export."""

    manifest: Manifest
    plan: Plan
    results: Results
    shard: Shard | None = None
    noop: Noop | None = None
    """What the next export compares first, if it would run no cell."""
    statistics: StoreStatistics | None = None
    """The use of the store, or None if there is none."""
    has_tables: bool = True
    """Whether tables were written; not for a part of the cells if others have no result."""

    @property
    def noop_inputs(self) -> NoopInputs | None:
        """The inputs of `noop`, by the name that version 1.0 of the package has."""
        return self.noop.inputs if self.noop else None

    @property
    def started(self) -> int:
        """The time of `noop` before the first input, as in version 1.0; 0 without `noop`."""
        return self.noop.since.changed if self.noop else 0

    @property
    def is_green(self) -> bool:
        """Whether all manifests are valid, and all selected cells have a result that is not red."""
        if self.manifest.problems:
            return False
        records = self.results.run.by_cell()
        selected = [records.get(planned.cell) for planned in self.plan.selected]
        return all(record is not None and not record.status.is_red for record in selected)


def export(
    root: Path,
    options: ExportOptions,
    observer: BuildObserver,
    starter: ProcessStarter,
    environment: Mapping[str, str],
) -> ExportResult:
    """Build and prove the selected cells; write the reports.

    There are no reports of a shard, or of another build folder than the project's. The caller
    closes the starter.

    Raises:
        ExporterError: MANIFEST, NOTHING_SELECTED or ENVIRONMENT.
        KeyboardInterrupt: after the finished cells were stored.
        StoppedByFailure: the same, if `fail_fast` is set and a cell is red.
    """
    since = read_filesystem_clock(root)
    # Read.
    loaded = load_layers(root, keep_invalid=True, initial_weights=options.initial_weights)
    manifest = options.adapt(loaded.manifest)
    project = manifest.project
    start = observe_project(loaded, list_page_inputs(project))
    # Select.
    plan = options.make_plan(manifest, environment)
    # Decide, prove and record.
    options = options.open_store(project, environment)
    require_packages()
    engine = make_engine(project, options, starter, environment, observer.on_note)
    results = run_plan(manifest, plan, engine, observer, options)
    # Report. The tables of a part would lack the results of all other cells.
    noop, has_tables = None, options.selection.is_everything or not results.missing
    if options.shard:
        build_path = BuildFolder.from_project(project).path
        complete_plan = add_links(make_plan(manifest, options.selection))
        write_shard_note(build_path, options.shard, complete_plan)
    elif not options.build and has_tables:
        for warning in write_reports(manifest, results.run):
            observer.on_note(warning)
        # An edit of another file, such as a missing source, can repair an invalid entry.
        is_valid = not manifest.problems and not any(spec.problems for spec in manifest.models)
        is_complete = is_valid and options.selection.is_everything and not results.missing
        # The next export without the option must not use these results.
        is_complete = is_complete and not any(spec.lacks_weights for spec in manifest.models)
        checked = since if results.unchanged else read_next_tick(root)
        if is_complete and (results.unchanged or _is_up_to_date(manifest, plan, results)):
            inputs = collect_inputs(project, start, results, list_pages(project))
            if start.is_unchanged(root):
                noop = Noop(inputs=inputs, since=since, checked=checked)
    return ExportResult(
        manifest=manifest,
        plan=plan,
        results=results,
        shard=options.shard,
        noop=noop,
        statistics=options.store.make_statistics() if options.store else None,
        has_tables=has_tables and not options.shard and not options.build,
    )


def _is_up_to_date(manifest: Manifest, plan: Plan, results: Results) -> bool:
    """Return whether the next export would run no cell and have these results and pages.

    All records and files are read again: another program may have changed one since the export
    wrote it.
    """
    project = manifest.project
    folder, by_cell = BuildFolder.from_project(project), results.run.by_cell()
    stored, validator = StoredRecords(folder), RecordValidator(manifest)
    if results.restored or decide(plan, stored, validator).to_run:
        return False
    records = [stored.get(planned.cell) for planned in plan.to_run]
    judged = (validator.apply_expectations(each) for each in records if each)
    has_same = all(by_cell.get(each.cell) == each for each in judged)
    is_written = _has_text(folder.results, results.run.to_json())
    return has_same and is_written and are_pages_unmodified(project)


def run_plan(
    manifest: Manifest,
    plan: Plan,
    engine: Engine,
    observer: BuildObserver,
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
    folder = BuildFolder.from_project(manifest.project)
    with folder.lock():
        folder.shard_note.unlink(missing_ok=True)  # an earlier export wrote it
        stored, validator = StoredRecords(folder), RecordValidator(manifest)
        planned = {planned.cell for planned in plan.cells}
        notes = recover_killed_runs(
            stored, lambda record: record.cell in planned and validator.is_valid(record)
        )
        decisions = decide(plan, stored, validator, options)
        folder.require_written((*(each.cell for each in decisions.to_run), *decisions.hits))
        models = dict.fromkeys(planned.cell.model for planned in decisions.to_run)
        # Before stale records are replaced by those of the store.
        costs = estimate_costs(
            {model_id: stored.get_model(model_id).by_cell for model_id in models}
        )
        store = options.store if decisions.to_run or decisions.hits else None
        if store and decisions.hits:
            decisions = store.get(decisions, plan, stored, validator)
        observer.on_decisions(decisions)
        if decisions.to_run:
            preload_pages(manifest.project)  # the first workers need seconds to start
        _report(observer, (*notes, *(store.take_notes() if store else ())))
        build = Build(
            manifest=manifest,
            plan=plan,
            engine=engine,
            stored=stored,
            validator=validator,
            observer=observer,
            options=options,
            store=store,
        )
        try:
            with closing(_prove(build, decisions, costs)) as proofs:
                try:
                    for proof in proofs:
                        red = _record(build, proof)
                        if red and options.fail_fast:
                            raise StoppedByFailure(str(red[0]))
                except KeyboardInterrupt as interrupt:
                    for proof in end_jobs(proofs, interrupt):
                        _record(build, proof)
                    records = [stored.get(planned.cell) for planned in decisions.to_run]
                    if decisions.hits or any(each and validator.is_valid(each) for each in records):
                        interrupt.add_note(RESULTS_NOTE)
                    raise
            _report(observer, store.finish() if store else ())
        finally:
            folder.remove_misplaced_folders()
            results = collect_results(plan, stored, validator)
            _write_if_changed(results.run, folder.results)
    _report(observer, _explain_lost_results(decisions, results, stored, validator))
    unchanged = not (decisions.to_run or decisions.hits)
    return replace(results, unchanged=unchanged, restored=frozenset(decisions.hits))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """The selected cells, and the decision for each."""

    plan: Plan
    decisions: Decisions
    invalid_models: frozenset[str] = frozenset()
    """The models with an invalid entry; their cells are unknown, and at least one is red."""
    notes: tuple[str, ...] = ()
    """Messages about the remote store."""


def plan(manifest: Manifest, options: ExportOptions, environment: Mapping[str, str]) -> BuildPlan:
    """Return the decisions of an export that starts now.

    Raises:
        ExporterError: NOTHING_SELECTED if no cell is selected.
    """
    manifest = options.adapt(manifest)
    selected = options.make_plan(manifest, environment)
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    validator = RecordValidator(manifest)
    options = options.open_store(manifest.project, environment)
    decisions = decide(selected, stored, validator, options)
    store = options.store if decisions.to_run or decisions.hits else None
    notes = tuple(store.take_notes()) if store else ()
    invalid = frozenset(spec.id for spec in manifest.models if spec.problems)
    return BuildPlan(plan=selected, decisions=decisions, invalid_models=invalid, notes=notes)


def _prove(
    build: Build, decisions: Decisions, costs: Mapping[str, Cost]
) -> Generator[Proof, None, None]:
    """Run the cells, and yield each model whose cells have ended."""
    stored, fingerprints = build.stored, build.validator.fingerprints
    to_build = tuple(planned for planned in decisions.to_run if stored.build.owns(planned.cell))
    if to_build:
        devices = {planned.cell.device for planned in to_build}
        on_note = build.observer.on_note
        project = create_environments(build.manifest.project, devices, on_note)
        fingerprints.forget_devices()
        models = build.manifest.models
        if build.options.thorough:
            models = tuple(each.model_copy(update={"thorough": True}) for each in models)
        # A copy would keep the cached index of the other models.
        manifest = Manifest(project=project, models=models, problems=build.manifest.problems)
        build = replace(build, manifest=manifest)
        count_nodes = partial(_count_accepted_nodes, project)

        def make_model_tasks(*, are_chains: bool) -> list[Task]:
            cells = tuple(each for each in to_build if bool(each.links) is are_chains)
            part = replace(decisions, to_run=cells)
            jobs = make_jobs(manifest, part, stored.build, fingerprints, build.find_valid)
            return make_tasks(jobs, costs, stored.build, build.engine.workers, count_nodes)

        # A chain runs the files of its links, which are in place after all other models.
        make_chains = partial(make_model_tasks, are_chains=True)
        yield from Supervisor(build, make_model_tasks(are_chains=False), make_chains).run()
    if len(to_build) < len(decisions.to_run):
        export_parts(build, decisions)


def _record(build: Build, proof: Proof) -> list[CellId]:
    """Put the results of a model in place, and add them to the store. Return its red cells."""
    store, validator = build.store, build.validator
    build.stored.replace_model(proof.model, proof.records)
    if store and not have_tools_changed():
        current = RecordValidator(validator.manifest)  # files may have changed since the run began
        valid = [record for record in proof.built if current.is_valid(record)]
        if note := store.put(valid, proof.records.folder):
            build.observer.on_note(note)
    build.observer.on_model_done(proof.model)
    judged = map(validator.apply_expectations, proof.built)
    return [record.cell for record in judged if record.status.is_red]


def _count_accepted_nodes(project: Project) -> Counter[str]:
    """Return the nodes of all accepted files of each model; none if there is no baseline."""
    sizes: Counter[str] = Counter()
    with suppress(ExporterError):
        for outcome in read_baseline(ReportPaths(project).baseline).cells:
            sizes[outcome.cell.model] += outcome.figures.nodes if outcome.figures else 0
    return sizes


def _report(observer: BuildObserver, notes: Iterable[str]) -> None:
    for note in notes:
        observer.on_note(note)


def _write_if_changed(run: RunRecord, path: Path) -> None:
    """Write the results. An unchanged file keeps its timestamp, which the no-op check compares."""
    text = run.to_json()
    if not _has_text(path, text):
        write_text(path, text)


def _has_text(path: Path, text: str) -> bool:
    content = text.encode()
    try:
        return read_regular_file(path, len(content)) == content
    except OSError:
        return False


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
