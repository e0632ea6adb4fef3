"""Decide for each selected cell which action an export would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exporter.cache.noop_snapshot import get_today
from exporter.core.errors import ExporterError
from exporter.manifest import Manifest
from exporter.manifest.resolved.project import EngineKind
from exporter.pipeline import (
    BuildFolder,
    BuildOptions,
    Decisions,
    RecordValidator,
    StoredRecords,
    decide,
    require_toolchain,
)
from exporter.planning.plan import Plan, make_plan
from exporter.planning.selection import EVERYTHING, Selection
from exporter.planning.shards import Shard, select_shard
from exporter.records.baseline import read_baseline
from exporter.usecases.project_store import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of `plan` and `export`."""

    selection: Selection = EVERYTHING
    shard: Shard | None = None
    """Only the models of this shard."""
    engine: EngineKind | None = None
    """The engine. None for the project's setting."""
    scheduler: str = ""
    """The address of a Dask scheduler instead of the project's, or ""."""
    jobs: int | None = None
    """The number of workers. None for the project's setting or the machine's cores."""
    force: bool = False
    """Also run cells that are up to date."""
    thorough: bool = False
    """Try more sizes and values."""
    fail_fast: bool = False
    """Stop after the first model with a red cell."""
    use_store: bool = True
    keeps_starter: bool = False
    """Leave the starter of the workers open, so that the next export needs no import of torch."""
    build: Path | None = None
    """Another build folder than the project's; then no reports are written."""
    toolchain: str = ""
    """Only the cells of this toolchain, whose packages this process has; `current` for those with
    the project's own packages. If it is empty, all cells."""

    def make_build_options(
        self, manifest: Manifest, environment: Mapping[str, str]
    ) -> BuildOptions:
        """Return the options of the build, with the store."""
        store = open_store(manifest.project, environment) if self.use_store else None
        return BuildOptions(
            force=self.force,
            thorough=self.thorough,
            store=store,
            environment=environment,
            read_sizes=partial(_count_accepted_nodes, manifest),
        )

    def adapt(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the build folder and the toolchain of these options.

        Raises:
            ExporterError: ENVIRONMENT if this process lacks the packages of the toolchain.
        """
        if self.toolchain:
            require_toolchain(manifest.project, self.toolchain)
            manifest = manifest.select_toolchain(self.toolchain)
        if self.build is None:
            return manifest
        folders = {
            "build": str(self.build.absolute()),
            "environments_path": str(manifest.project.environments_folder.absolute()),
        }
        project = manifest.project.model_copy(update=folders)
        return Manifest(project=project, models=manifest.models, problems=manifest.problems)

    def make_plan(self, manifest: Manifest) -> Plan:
        """Return the plan with the cells of the selection and of the shard."""
        full = make_plan(manifest, self.selection)
        return select_shard(full, self.shard) if self.shard else full


def _count_accepted_nodes(manifest: Manifest) -> Counter[str]:
    """Return the nodes of all accepted files of each model; none if there is no baseline."""
    from exporter.usecases.report_pages import ReportPaths  # loads the pages

    sizes: Counter[str] = Counter()
    with suppress(ExporterError):
        for outcome in read_baseline(ReportPaths(manifest.project).baseline).cells:
            sizes[outcome.cell.model] += outcome.figures.nodes if outcome.figures else 0
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """The selected cells, and the decision for each."""

    plan: Plan
    decisions: Decisions
    notes: tuple[str, ...] = ()
    """Messages about the remote store."""


def plan(manifest: Manifest, options: ExportOptions, environment: Mapping[str, str]) -> BuildPlan:
    """Return the decisions of an export that starts now.

    Raises:
        ExporterError: NOTHING_SELECTED if no cell is selected.
    """
    manifest = options.adapt(manifest)
    selected = options.make_plan(manifest)
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    validator = RecordValidator(manifest, get_today())
    build_options = options.make_build_options(manifest, environment)
    decisions = decide(selected, stored, validator, build_options)
    store = build_options.store if decisions.to_run or decisions.hits else None
    notes = tuple(store.take_notes()) if store else ()
    return BuildPlan(plan=selected, decisions=decisions, notes=notes)
