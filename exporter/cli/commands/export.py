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

from exporter.cli.options import (
    no_store_option,
    read_environment_names,
    result_options,
    root_option,
    selection_options,
    weights_option,
)
from exporter.cli.output.terminal import print_line, print_summary
from exporter.core.errors import ExitCode
from exporter.core.toml_table import read_setting
from exporter.pipeline.noop_snapshot import load_snapshot, save_snapshot
from exporter.planning import Selection
from exporter.processes.fork_server_client import make_starter

if TYPE_CHECKING:
    from exporter.core.errors import ExportSummary
    from exporter.planning.plan import Shard
    from exporter.program import ExportResult


def _check_engine(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value:
        return value
    from exporter.manifest.resolved.keys import (
        check_engine,  # 100 ms of pydantic, which a no-op does not need
    )

    try:
        return check_engine(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _parse_shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    if value is None:
        return None
    from exporter.planning.plan import Shard  # 100 ms of pydantic, which a no-op does not need

    index, _slash, count = value.partition("/")
    if not all(text.isascii() and text.isdigit() for text in (index, count)):
        raise click.BadParameter(f"expected I/N, such as 1/4, got '{value}'")
    shard = Shard(index=int(index), count=int(count))
    if not 1 <= shard.index <= shard.count:
        raise click.BadParameter(f"expected 1 to {count}, got {index}")
    return shard


@click.command()
@selection_options
@result_options
@root_option
@click.option(
    "--engine",
    metavar="local|dask|ADDRESS|FUNCTION",
    default="",
    callback=_check_engine,
    help="Run the jobs here, or on a Dask cluster.  [default: local]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of workers.  [default: by cores and memory]",
)
@click.option(
    "--shard",
    metavar="I/N",
    callback=_parse_shard,
    help="Only part I of N, in complete models; `merge` joins the parts.",
)
@click.option("--dry-run", is_flag=True, help="Only print the plan, like `plan`.")
@click.option("--force", is_flag=True, help="Also run cells that are up to date.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first model with a red cell.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@weights_option
@no_store_option
@click.option(
    "--build",
    type=click.Path(file_okay=False, path_type=Path),
    help="Use this build folder instead of the project's, and write no reports.",
)
@click.option("--timings", is_flag=True, help="Print the seconds of stages and checks.")
@click.option("--stats", is_flag=True, help="Print the use of the store; write it as JSON.")
@click.option("--explain", is_flag=True, help="Print the reason each cell is rebuilt.")
@click.option("-q", "--quiet", is_flag=True, help="Print only red cells and the counts.")
@click.option("-v", "--verbose", is_flag=True, help="The same as --explain --timings.")
@click.option("--watch", is_flag=True, help="Run cells again when a file of theirs changes.")
def export(  # noqa: PLR0913 - one parameter for each option
    selection: Selection,
    *,
    root: Path,
    engine: str,
    jobs: int | None,
    shard: Shard | None,
    dry_run: bool,
    force: bool,
    fail_fast: bool,
    thorough: bool,
    weights: str | None,
    no_store: bool,
    build: Path | None,
    timings: bool,
    stats: bool,
    explain: bool,
    quiet: bool,
    verbose: bool,
    watch: bool,
) -> int:
    """Build and prove the files of CELLS, or of all cells.

    CELLS are globs over cell ids, such as 'alexnet', 'resnet*/18' or '*/*/cpu'. A cell that is up
    to date is reused. If the store has the result of the same inputs, it is restored.
    """
    started = time.monotonic()
    explain, timings = explain or verbose, timings or verbose
    runs_cells = force or thorough or shard or build or watch or weights
    prints_other = dry_run or timings or stats or quiet
    if selection.is_everything and not runs_cells and not prints_other:
        summary = load_snapshot(root)
        if summary:
            print_summary(summary, time.monotonic() - started)
            return summary.code
    is_local = (engine or read_setting(root, "engine", "local")) == "local"
    if watch and (dry_run or fail_fast or shard or stats or not is_local):
        raise click.UsageError("--watch: remove --dry-run, --fail-fast, --shard, --stats or dask")
    # The first worker starts before the settings are validated.
    with closing(make_starter(os.environ, read_environment_names(root))) as starter:
        if not dry_run and is_local:
            # The first worker needs seconds to start; meanwhile the parent decides what to run.
            starter.prepare()
        # A no-op imports none of these: they need 160 ms.
        from exporter import program
        from exporter.cli.output.export_result import print_result
        from exporter.cli.output.progress import observe_progress
        from exporter.cli.output.store_use import show_statistics
        from exporter.cli.output.tables import open_project, show_plan
        from exporter.cli.watch import export_changes
        from exporter.export_options import ExportOptions

        options = ExportOptions(
            selection=selection,
            shard=shard,
            jobs=jobs,
            engine=engine,
            force=force,
            thorough=thorough,
            fail_fast=fail_fast,
            initial_weights=weights is not None,
            use_store=not no_store,
            keeps_starter=watch,
            build=build,
        )
        if watch:
            export_changes(root, options, starter, timings=timings)
        if dry_run:
            manifest = open_project(root, initial_weights=options.initial_weights)
            show_plan(program.plan(manifest, options, os.environ))
            return ExitCode.OK
        with observe_progress(explain=explain, quiet=quiet) as observer:
            result = program.export(root, options, observer, starter, os.environ)
        has_tables = not shard and not build
        summary = print_result(
            result,
            started,
            timings=timings,
            quiet=quiet,
            has_tables=has_tables,
            verbose=verbose,
        )
        if shard:
            print_line(f"shard {shard}: `exporter merge` writes the tables of all shards")
        if stats:
            show_statistics(result.manifest.project, result.statistics)
        if not quiet and not timings:
            save_summary(result, summary)
        return summary.code


def save_summary(result: ExportResult, summary: ExportSummary) -> None:
    """Store the summary that the next export prints if no input changes."""
    if result.noop:
        project, noop = result.manifest.project, result.noop
        root = Path(project.root)
        save_snapshot(root, root / project.build, noop.inputs, summary, noop.since, noop.checked)
