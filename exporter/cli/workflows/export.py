"""An export that has something to look at: decides, runs, publishes and says what came of it.

In: what was asked for. Out: the build folder, the reports, lines, and an exit code.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exporter.build import (
    BuildFolder,
    BuildOptions,
    Results,
    require_packages,
    run_plan,
)
from exporter.build.engine import LocalEngine
from exporter.build.noop_inputs import collect_noop_inputs
from exporter.cache.noop_snapshot import ExportSummary, read_filesystem_clock, save_snapshot
from exporter.cli.options.selection import get_today
from exporter.cli.options.store import open_store
from exporter.cli.output.plan_table import show_plan
from exporter.cli.output.progress import observe_progress
from exporter.cli.output.summary import print_summary, show_summary, make_summary
from exporter.cli.output.terminal import print_line
from exporter.cli.workflows.noop import build_folder
from exporter.cli.workflows.plan import decisions_for
from exporter.cli.workflows.report import made_from, prepare, publish
from exporter.core.errors import ExitCode
from exporter.manifest import LoadedProject, load_layers
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.planning.shards import (
    Shard,
    remove_shard_note,
    write_shard_note,
    select_shard,
)
from exporter.processes import ProcessStarter

#: What a model of half a gigabyte takes with its float64 twin and its files.
_MEMORY_PER_JOB = 3 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The command line of an export."""

    selection: Selection
    jobs: int | None
    shard: Shard | None
    dry_run: bool
    force: bool
    thorough: bool
    explain: bool
    no_store: bool


def build_and_prove(root: Path, asked: ExportOptions, starter: ProcessStarter) -> int:
    """Does what was asked for; the answer is the exit code.

    Args:
        root: The project's folder.
        asked: What is wanted.
        starter: Starts the workers; whoever has it closes it.

    Raises:
        ExporterError: MANIFEST, NOTHING_SELECTED, ENVIRONMENT.
    """
    began = read_filesystem_clock(build_folder(root))  # before anything is read
    loaded = load_layers(root)
    manifest, project = loaded.manifest, loaded.manifest.project
    whole = make_plan(manifest, asked.selection)
    plan = select_shard(whole, asked.shard) if asked.shard else whole
    store = None if asked.no_store else open_store(project)
    wish = BuildOptions(force=asked.force, thorough=asked.thorough, store=store)
    if asked.dry_run:
        show_plan(plan, decisions_for(manifest, plan, wish))
        return ExitCode.OK
    require_packages()
    build = BuildFolder.from_project(project).path
    remove_shard_note(build)
    engine = LocalEngine(asked.jobs or project.jobs or default_jobs(), starter)
    meanwhile = partial(prepare, project)
    with observe_progress(explain=asked.explain, meanwhile=meanwhile) as watcher:
        results = run_plan(manifest, plan, engine, watcher, get_today(), wish)
    if asked.shard:
        write_shard_note(build, asked.shard, whole)
        print_line(
            f"shard {asked.shard}: no tables are written before `exporter merge` has all shards"
        )
        return show_summary(manifest, plan, results.run, restored=len(results.restored))
    publish(manifest, results.run)
    found = make_summary(manifest, plan, results.run, restored=len(results.restored))
    tables = (f"tables: {project.reports}/COMPATIBILITY.md", None)
    said = ExportSummary(lines=(*found.lines, tables), code=found.code)
    print_summary(said)
    if asked.selection.is_everything and results.unchanged and not results.missing:
        _remember(loaded, results, said, began)
    return said.code


def _remember(loaded: LoadedProject, results: Results, said: ExportSummary, began: int) -> None:
    """The next export needs to look no closer, as long as nothing is touched."""
    project = loaded.manifest.project
    root, build = Path(project.root), BuildFolder.from_project(project).path
    save_snapshot(
        root,
        build,
        collect_noop_inputs(loaded, results, made_from(project), get_today()),
        said,
        began,
    )


def default_jobs() -> int:
    """One model per core, as far as the memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores or 1, memory // _MEMORY_PER_JOB))
