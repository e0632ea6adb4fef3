"""`exporter export`: build and prove the selected cells, and write the reports.

If nothing changed since the last export, print its summary and exit without loading more.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.cache.noop_snapshot import find_build_folder, get_today, load_snapshot
from exporter.cli.options import (
    engine_options,
    no_store_option,
    root_option,
    selection_options,
    shard_option,
)
from exporter.cli.output.terminal import print_line, print_summary
from exporter.core.errors import ExitCode
from exporter.core.toml_table import read_setting
from exporter.planning.selection import Selection
from exporter.processes.fork_server_client import make_starter

if TYPE_CHECKING:
    from exporter.cli.options import EngineArguments
    from exporter.planning.shards import Shard


@click.command()
@selection_options
@root_option
@engine_options
@shard_option
@click.option("--dry-run", is_flag=True, help="Only print the plan, like `plan`.")
@click.option("--force", is_flag=True, help="Also run cells that are up to date.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first model with a red cell.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@no_store_option
@click.option(
    "--build",
    type=click.Path(file_okay=False, path_type=Path),
    help="Use this build folder instead of the project's, and write no reports.",
)
@click.option("--toolchain", default="", hidden=True, help="Only the cells of this toolchain.")
@click.option("--timings", is_flag=True, help="Print the seconds of stages and checks.")
@click.option("--stats", is_flag=True, help="Print the use of the store; write it as JSON.")
@click.option("--explain", is_flag=True, help="Print the reason each cell is rebuilt.")
def export(
    selection: Selection,
    root: Path,
    engine: EngineArguments,
    shard: Shard | None,
    build: Path | None,
    toolchain: str,
    **flags: bool,
) -> int:
    """Build and prove the files of CELLS, or of all cells.

    CELLS are globs over cell ids, such as 'alexnet', 'resnet*/18' or '*/*/cpu'. A cell that is up
    to date is reused. If the store has the result of the same inputs, it is restored.
    """
    started = time.monotonic()
    options_of_run = ("dry_run", "force", "thorough", "timings", "stats")
    has_options = shard or build or toolchain or any(flags[name] for name in options_of_run)
    if selection.is_everything and not has_options:
        build_folder = find_build_folder(root)
        summary = load_snapshot(root.absolute(), build_folder, get_today().isoformat())
        if summary:
            print_summary(summary, time.monotonic() - started)
            return summary.code
    # The first worker starts before the settings are validated.
    variables: list[str] = read_setting(root, "environment", [])
    with closing(make_starter(os.environ, map(str, variables))) as starter:
        if not flags["dry_run"] and not engine.uses_cluster(root):
            # The first worker needs seconds to start; meanwhile the parent decides what to run.
            starter.prepare()
        # A no-op must not import the build.
        from exporter.cache.noop_snapshot import ExportSummary
        from exporter.cli.output.progress import ModelEvents, observe_progress
        from exporter.cli.output.summary import make_summary
        from exporter.cli.output.tables import (
            open_project,
            print_file_problems,
            show_plan,
            show_statistics,
        )
        from exporter.manifest.syntax.values import CURRENT_TOOLCHAIN
        from exporter.usecases import build_plan, export_run

        options = build_plan.ExportOptions(
            selection=selection,
            shard=shard,
            jobs=engine.jobs,
            engine=engine.kind,
            scheduler=engine.scheduler,
            force=flags["force"],
            thorough=flags["thorough"],
            fail_fast=flags["fail_fast"],
            use_store=not flags["no_store"],
            build=build,
            toolchain=toolchain,
        )
        if flags["dry_run"]:
            show_plan(build_plan.plan(open_project(root), options, os.environ))
            return ExitCode.OK
        if toolchain not in ("", CURRENT_TOOLCHAIN):
            export_run.export(root, options, ModelEvents(), starter, os.environ)
            return ExitCode.OK
        with observe_progress(explain=flags["explain"]) as observer:
            result = export_run.export(root, options, observer, starter, os.environ)
        manifest, restored = result.manifest, len(result.results.restored)
        run, timings = result.results.run, flags["timings"]
        summary = make_summary(manifest, result.plan, run, restored=restored, timings=timings)
        print_file_problems(manifest)
        if shard:
            print_line(f"shard {shard}: `exporter merge` writes the tables of all shards")
        elif not build:
            tables = (f"tables: {manifest.project.reports}/COMPATIBILITY.md", None)
            *others, counts = summary.lines
            summary = ExportSummary(lines=(*others, tables, counts), code=summary.code)
        print_summary(summary, time.monotonic() - started)
        if flags["stats"]:
            show_statistics(manifest.project, result.statistics)
        export_run.save_noop_summary(result, summary)
        return summary.code
