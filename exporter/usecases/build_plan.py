"""Decide for each selected cell which action an export would take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from exporter.cache.fingerprint import compute_fingerprint
from exporter.cache.noop_snapshot import get_today
from exporter.cache.states import ALL_FILES, LISTING, MODULES
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.git import check_out, list_changed_files
from exporter.manifest import Manifest, load_project
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
from exporter.planning.plan import Plan, list_cells, make_plan
from exporter.planning.selection import EVERYTHING, Selection
from exporter.planning.shards import Shard, select_shard
from exporter.records.baseline import read_baseline
from exporter.records.record import CellId, Record
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

    def make_plan(self, manifest: Manifest, environment: Mapping[str, str]) -> Plan:
        """Return the plan with the selected cells.

        Raises:
            ExporterError: NOTHING_SELECTED if there are none; see also `check_out`.
        """
        plan = make_plan(manifest, self.selection)
        if self.selection.last_failed:
            plan = _select_red_cells(manifest, plan)
        if revision := self.selection.changed:
            plan = _select_changed_cells(manifest, plan, revision, environment)
        return select_shard(plan, self.shard) if self.shard else plan


def _select_red_cells(manifest: Manifest, plan: Plan) -> Plan:
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    validator = RecordValidator(manifest, get_today())
    records = {planned.cell: stored.get(planned.cell) for planned in plan.to_run}
    red = {
        cell
        for cell, record in records.items()
        if record and validator.apply_expectations(record).status.is_red
    }
    return _select(plan, red, "no selected cell is red in its last result")


def _select_changed_cells(
    manifest: Manifest, plan: Plan, revision: str, environment: Mapping[str, str]
) -> Plan:
    """Select the cells with another entry, device or file than at a revision, or without a record.

    Files that git ignores, packages and variables are not compared.
    """
    project = manifest.project
    root = Path(project.root)
    with check_out(root, revision, environment, "--changed") as checkout:
        names = list_changed_files(root, checkout.commit.id, environment)
        try:
            before = load_project(checkout.root, root, keep_invalid=True)
        except ExporterError:  # no valid project: each cell is a change
            before = Manifest(project=project, models=())
    specs = {spec.id: spec for spec in before.models}
    devices = {device.name: device for device in before.project.devices}
    stored = StoredRecords(BuildFolder.from_project(project))
    changed = set()
    for planned in plan.to_run:
        cell, spec = planned.cell, manifest.find_model(planned.cell.model)
        old, record = specs.get(cell.model), stored.get(cell)
        if (
            old is None
            or record is None
            or cell not in list_cells(old)
            or devices.get(cell.device) != project.find_device(cell.device)
            or compute_fingerprint(old) != compute_fingerprint(spec)
            or any(_differs(file, names) for file in _list_files(record, root))
        ):
            changed.add(cell)
    return _select(plan, changed, f"no selected cell has a change since {checkout.name}")


def _list_files(record: Record, root: Path) -> set[str]:
    outside = (os.path.relpath(root / name, root) for name in record.packages if "/" in name)
    return {*(source.file for source in record.sources), *outside}


def _differs(file: str, names: Mapping[str, bool]) -> bool:
    """Return True if a dependency is among the changed files, or is a list of such names."""
    folder, _, name = file.rpartition("/")
    if name not in (LISTING, ALL_FILES):
        parents = map(str, PurePosixPath(file).parents)  # one of them may be a submodule
        return file in names or any(parent in names for parent in parents)
    added = (PurePosixPath(changed) for changed, is_new in names.items() if is_new)
    if name == ALL_FILES:
        return any(path.is_relative_to(folder) for path in added)
    # A package counts as its `__init__.py`.
    modules = (path.parent if path.name == "__init__.py" else path for path in added)
    return any(
        str(path.parent) == (folder or ".")
        for path in modules
        if not path.suffix or path.suffix in MODULES
    )


def _select(plan: Plan, cells: Collection[CellId], problem: str) -> Plan:
    if not cells:
        raise ExporterError(ExitCode.NOTHING_SELECTED, problem)
    return replace(plan, selected=tuple(each for each in plan.selected if each.cell in cells))


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
    selected = options.make_plan(manifest, environment)
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    validator = RecordValidator(manifest, get_today())
    build_options = options.make_build_options(manifest, environment)
    decisions = decide(selected, stored, validator, build_options)
    store = build_options.store if decisions.to_run or decisions.hits else None
    notes = tuple(store.take_notes()) if store else ()
    return BuildPlan(plan=selected, decisions=decisions, notes=notes)
