"""The options of an export: which cells it selects, and where they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.system import count_cores, measure_memory
from exporter.manifest import Manifest, Project
from exporter.manifest.resolved.keys import LOCAL
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.pipeline.changed_cells import find_changed_cells
from exporter.pipeline.decisions import BuildOptions, RecordValidator
from exporter.pipeline.engine import Engine, LocalEngine
from exporter.pipeline.required_packages import require_own_checkout
from exporter.planning import EVERYTHING, Selection
from exporter.planning.plan import Plan, Shard, add_chains, add_links, make_plan, select_shard
from exporter.processes import ProcessStarter
from exporter.records.record import CellId


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(BuildOptions):
    """The options of `plan` and `export`, which open the store themselves."""

    selection: Selection = EVERYTHING
    shard: Shard | None = None
    """The part of the models that this run exports."""
    engine: str = ""
    """The engine, as the project's key `engine`; "" for the project's setting."""
    jobs: int | None = None
    """The number of workers. None for as many as cores and memory allow."""
    initial_weights: bool = False
    """Use initial values where a file of weights that git ignores is missing."""
    use_store: bool = True
    keeps_starter: bool = False
    """Leave the starter of the workers open, so that the next export needs no import of torch."""
    build: Path | None = None
    """Another build folder than the project's; then no reports are written."""
    adapt_manifest: Callable[[Manifest], Manifest] | None = None
    """Return the manifest to export in place of the project's, such as a part of its cells."""

    def open_store(self, project: Project, environment: Mapping[str, str]) -> ExportOptions:
        """Return the options with the store of the project, unless they exclude it."""
        # 6 ms with the formats of the store, which commands without an export do not need.
        from exporter.store.project_store import open_store

        store = open_store(project, environment) if self.use_store else None
        return replace(self, store=store, environment=environment)

    def adapt(self, manifest: Manifest) -> Manifest:
        """Return the manifest as these options change it.

        Raises:
            ExporterError: ENVIRONMENT if this process imports the modules of another checkout.
        """
        require_own_checkout(Path(manifest.project.root))
        if self.adapt_manifest:
            manifest = self.adapt_manifest(manifest)
        if self.build is None:
            return manifest
        folders = {
            "build": str(self.build.absolute()),
            "environments_path": str(manifest.project.environments_folder.absolute()),
        }
        project = manifest.project.model_copy(update=folders)
        return Manifest(project=project, models=manifest.models, problems=manifest.problems)

    def make_plan(self, manifest: Manifest, environment: Mapping[str, str]) -> Plan:
        """Return the plan with the selected cells.

        Raises:
            ExporterError: NOTHING_SELECTED if there are none; see also `check_out`.
        """
        plan = make_plan(manifest, self.selection)
        if self.selection.last_failed:
            stored = StoredRecords(BuildFolder.from_project(manifest.project))
            validator = RecordValidator(manifest)
            records = [(each.cell, stored.get(each.cell)) for each in plan.to_run]
            red = {
                cell
                for cell, record in records
                if record and validator.apply_expectations(record).status.is_red
            }
            plan = _select(plan, red, "no selected cell is red in its last result")
        if revision := self.selection.changed:
            plan = _select(plan, *find_changed_cells(manifest, plan, revision, environment))
            plan = add_chains(plan)
        plan = add_links(plan)
        return select_shard(plan, self.shard) if self.shard else plan


def _select(plan: Plan, cells: Collection[CellId], problem: str) -> Plan:
    if not cells:
        raise ExporterError(ExitCode.NOTHING_SELECTED, problem)
    return replace(plan, selected=tuple(each for each in plan.selected if each.cell in cells))


def select_engine(project: Project, options: ExportOptions) -> Project:
    """Return the project with the engine of the options, which take precedence.

    Raises:
        ExporterError: MANIFEST if the options contradict each other.
    """
    if options.engine:
        lines = {key: line for key, line in project.lines.items() if key != "engine"}
        project = project.model_copy(update={"engine": options.engine, "lines": lines})
    if project.engine != LOCAL and options.shard:
        message = (
            f"--shard {options.shard}: a cluster divides the cells itself; remove --shard, or use "
            "--engine local"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    return project


#: Bytes for one worker: a model of 500 MB with its float64 copy and its files.
_MEMORY_PER_JOB = 3 * 1024**3


def make_engine(
    project: Project,
    options: ExportOptions,
    starter: ProcessStarter,
    environment: Mapping[str, str],
    on_note: Callable[[str], None],
) -> Engine:
    """Return the engine of the project or of the options.

    Raises:
        ExporterError: MANIFEST if the options contradict each other, ENVIRONMENT without Dask.
    """
    jobs = options.jobs or get_default_jobs()
    project = select_engine(project, options)
    if project.engine == LOCAL:
        return LocalEngine(jobs, starter, keeps_starter=options.keeps_starter)
    from exporter.cluster.dask_engine import DaskEngine  # 15 ms, for a cluster only

    return DaskEngine(project, environment, on_note, jobs)


def get_default_jobs() -> int:
    """Return the number of workers that the cores and the memory allow."""
    return max(1, min(count_cores(), measure_memory() // _MEMORY_PER_JOB))
