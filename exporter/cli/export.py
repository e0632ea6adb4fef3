"""`exporter export`: builds and proves the selected cells, and writes the reports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from exporter.cli.options import root_option, selection_options, today
from exporter.cli.plan import decisions_for, show_plan
from exporter.cli.progress import progress
from exporter.cli.report import publish
from exporter.cli.shards import shard_option
from exporter.cli.summary import show_summary
from exporter.cli.terminal import say
from exporter.engine import LocalEngine, Spawner, Starter, Warm, worker_environment
from exporter.errors import ExitCode
from exporter.manifest import load_project
from exporter.plan import Selection, make_plan
from exporter.run import BuildFolder, Wish, require_packages, run_plan
from exporter.run.shards import Shard, forget_shard, note_shard, part_of

#: What a model of half a gigabyte takes with its float64 twin and its files.
_MEMORY_PER_JOB = 3 * 1024**3


@click.command()
@selection_options
@root_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Models at work at once.  [default: by cores and memory]",
)
@shard_option
@click.option("--dry-run", is_flag=True, help="Only show what would run, like `plan`.")
@click.option("--force", is_flag=True, help="Run cells whose result still holds, too.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@click.option("--explain", is_flag=True, help="Say why each cell runs that does.")
def command(
    selection: Selection, root: Path, jobs: int | None, shard: Shard | None, **flags: bool
) -> int:
    """Build and prove the files of CELLS, or of all of them.

    CELLS are globs over cell ids, such as 'alexnet', 'resnet*/18' or '*/*/cpu'. A cell whose
    result still holds is left as it is.
    """
    manifest = load_project(root)
    whole = make_plan(manifest, selection)
    plan = part_of(whole, shard) if shard else whole
    wish = Wish(force=flags["force"], thorough=flags["thorough"])
    if flags["dry_run"]:
        show_plan(plan, decisions_for(manifest, plan, wish))
        return ExitCode.OK
    require_packages()
    build = BuildFolder.of(manifest.project).path
    forget_shard(build)
    limit = jobs or manifest.project.jobs or default_jobs()
    engine = LocalEngine(limit, _starter())
    with progress(explain=flags["explain"]) as watcher:
        results = run_plan(manifest, plan, engine, watcher, today(), wish)
    if shard is None:
        publish(manifest, results.run)
        code = show_summary(manifest, plan, results.run)
        say(f"tables: {manifest.project.reports}/COMPATIBILITY.md")
        return code
    note_shard(build, shard, whole)
    say(f"shard {shard}: no tables are written before `exporter merge` has all shards")
    return show_summary(manifest, plan, results.run)


def _starter() -> Starter:
    """Warm workers where processes can fork and the kernel ends children with their parent."""
    environment = worker_environment(os.environ)
    return Warm(environment) if sys.platform == "linux" else Spawner(environment)


def default_jobs() -> int:
    """One model per core, as far as the memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores or 1, memory // _MEMORY_PER_JOB))
