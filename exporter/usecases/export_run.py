"""Export: build and prove the selected cells, and write the reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.noop_snapshot import (
    ExportSummary,
    NoopInputs,
    find_build_folder,
    get_today,
    read_filesystem_clock,
)
from exporter.cache.noop_snapshot import save_snapshot as write_snapshot
from exporter.cache.store import StoreStatistics
from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.jobs.job import Announcement
from exporter.manifest import EngineSettings, Manifest, Project, load_layers
from exporter.pipeline import (
    BuildFolder,
    BuildObserver,
    Decisions,
    Results,
    require_packages,
    run_plan,
)
from exporter.pipeline.engine import Engine, LocalEngine
from exporter.pipeline.noop_inputs import collect_noop_inputs
from exporter.planning.plan import Plan, make_plan
from exporter.planning.shards import Shard, remove_shard_note, write_shard_note
from exporter.processes import ProcessStarter
from exporter.records.record import CellId, Record
from exporter.usecases.build_plan import ExportOptions
from exporter.usecases.report_pages import list_page_inputs, preload_pages, write_reports


class FailFastObserver:
    """Forwards all events, and stops the build.

    Args:
        observer: Receives the events.
    """

    def __init__(self, observer: BuildObserver) -> None:
        self._observer = observer
        self._red: CellId | None = None
        self._is_stopping = False

    def on_decisions(self, decisions: Decisions) -> None:
        """Forward the event."""
        self._observer.on_decisions(decisions)

    def on_announcement(self, announcement: Announcement) -> None:
        """Forward the event."""
        self._observer.on_announcement(announcement)

    def on_cell_done(self, record: Record) -> None:
        """Forward the event, and store the first red cell."""
        self._observer.on_cell_done(record)
        if record.status.is_red and self._red is None:
            self._red = record.cell

    def on_model_done(self, model: str) -> None:
        """Forward the event.

        Raises:
            StoppedByFailure: once, if the model has a red cell.
        """
        self._observer.on_model_done(model)
        if self._red and self._red.model == model and not self._is_stopping:
            self._is_stopping = True  # the engine reports the models that it ends
            raise StoppedByFailure(str(self._red))

    def on_note(self, message: str) -> None:
        """Forward the event."""
        self._observer.on_note(message)


_DASK = "dask"


def select_engine(project: Project, options: ExportOptions) -> EngineSettings:
    """Return the settings of the engine; options take precedence.

    Raises:
        ExporterError: MANIFEST if the options contradict each other.
    """
    engine = project.engine
    kind = options.engine or engine.kind
    update: dict[str, object] = {"kind": kind}
    if options.engine:
        update["lines"] = {key: line for key, line in engine.lines.items() if key != "kind"}
    if options.scheduler:
        if kind != _DASK:
            message = "--scheduler: only the engine dask has a scheduler; add --engine dask"
            raise ExporterError(ExitCode.MANIFEST, message)
        lines = {"kind": engine.lines["kind"]} if "kind" in engine.lines else {}
        # The option selects another cluster than the keys of the project.
        update |= {"scheduler": options.scheduler, "cluster": "", "workers": None, "lines": lines}
    if kind == _DASK and options.shard:
        message = (
            f"--shard {options.shard}: a cluster divides the cells itself; remove --shard, or use "
            "--engine local"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    return engine.model_copy(update=update)


#: Bytes for one worker: a model of 500 MB with its float64 copy and its files.
_MEMORY_PER_JOB = 3 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The results of an export."""

    manifest: Manifest
    plan: Plan
    results: Results
    shard: Shard | None = None
    noop_inputs: NoopInputs | None = None
    """All inputs, if every cell was up to date; see `save_noop_summary`."""
    statistics: StoreStatistics | None = None
    """The use of the store, or None if there is none."""
    started: int = 0
    """The time of the build folder's file system before the first input was read."""

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

    There are no reports of a shard, or of another build folder than the project's.

    Args:
        root: The project's folder.
        options: The selection and the other options.
        observer: Receives the progress.
        starter: Starts the workers; the caller closes it.
        environment: The environment variables.

    Raises:
        ExporterError: MANIFEST, NOTHING_SELECTED or ENVIRONMENT.
        KeyboardInterrupt: after the finished cells were stored.
        StoppedByFailure: the same, if `fail_fast` is set and a cell is red.
    """
    if options.fail_fast:
        observer = FailFastObserver(observer)
    started = 0 if options.build else read_filesystem_clock(find_build_folder(root))
    loaded = load_layers(root, keep_invalid=True)
    manifest = options.adapt(loaded.manifest)
    project = manifest.project
    plan = options.make_plan(manifest, environment)
    build_options = options.make_build_options(manifest, environment)
    require_packages()
    jobs = options.jobs or project.jobs or get_default_jobs()
    engine = _choose_engine(project, options, environment, observer, jobs) or LocalEngine(
        jobs, starter, keeps_starter=options.keeps_starter
    )
    build = BuildFolder.from_project(project).path
    remove_shard_note(build)
    today = get_today()
    results = run_plan(
        manifest, plan, engine, _PreloadingObserver(observer, project), today, build_options
    )
    inputs = None
    if options.shard:
        write_shard_note(build, options.shard, make_plan(manifest, options.selection))
    elif not options.build:
        write_reports(manifest, results.run)
        # An edit of another file, such as a missing source, can repair an invalid entry.
        is_valid = not manifest.problems and not any(spec.problems for spec in manifest.models)
        is_complete = is_valid and options.selection.is_everything and not results.missing
        if is_complete and results.unchanged:
            inputs = collect_noop_inputs(loaded, results, list_page_inputs(project), today)
    return ExportResult(
        manifest=manifest,
        plan=plan,
        results=results,
        shard=options.shard,
        noop_inputs=inputs,
        statistics=build_options.store.make_statistics() if build_options.store else None,
        started=started,
    )


def _choose_engine(
    project: Project,
    options: ExportOptions,
    environment: Mapping[str, str],
    observer: BuildObserver,
    jobs: int,
) -> Engine | None:
    """Return the engine of a cluster, or None for the local one.

    Raises:
        ExporterError: MANIFEST if options contradict each other, ENVIRONMENT if Dask is missing.
    """
    settings = select_engine(project, options)
    if settings.kind == "local":
        return None
    from exporter.pipeline.cluster.dask_engine import DaskEngine

    return DaskEngine(project, settings, environment, observer.on_note, jobs)


def save_noop_summary(result: ExportResult, summary: ExportSummary) -> None:
    """Store the summary that the next export prints if no input changes."""
    if result.noop_inputs:
        project = result.manifest.project
        root, build = Path(project.root), BuildFolder.from_project(project).path
        write_snapshot(root, build, result.noop_inputs, summary, result.started)


def get_default_jobs() -> int:
    """Return the number of workers that the cores and the memory allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores or 1, memory // _MEMORY_PER_JOB))


@dataclass(frozen=True, slots=True)
class _PreloadingObserver:
    """Loads the templates while the first workers start, which takes seconds."""

    observer: BuildObserver
    project: Project

    def on_decisions(self, decisions: Decisions) -> None:
        self.observer.on_decisions(decisions)
        if decisions.to_run:
            preload_pages(self.project)

    def on_announcement(self, announcement: Announcement) -> None:
        self.observer.on_announcement(announcement)

    def on_cell_done(self, record: Record) -> None:
        self.observer.on_cell_done(record)

    def on_model_done(self, model: str) -> None:
        self.observer.on_model_done(model)

    def on_note(self, message: str) -> None:
        self.observer.on_note(message)
