"""`exporter merge`: join the shards of an export."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.build import BuildFolder
from exporter.build.shard_merge import merge_shards, read_shard_parts
from exporter.cli.options.selection import root_option
from exporter.cli.output.manifest_problems import open_project
from exporter.cli.output.result_notes import print_missing
from exporter.cli.output.summary import make_summary, print_summary
from exporter.cli.output.terminal import print_line
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.planning.plan import make_plan
from exporter.usecases.report_pages import write_reports


@click.command()
@click.argument(
    "folders",
    metavar="FOLDER...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@root_option
def merge(folders: tuple[Path, ...], root: Path) -> int:
    """Join the build folders of all shards and write the tables.

    Each FOLDER is the result of `export --shard`. All shards must be present, with all cells of
    the manifests. Red cells do not change the exit code, because the gate decides about them.
    """
    manifest = open_project(root)
    plan = make_plan(manifest)
    parts = read_shard_parts(folders, BuildFolder.from_project(manifest.project).path)
    results = merge_shards(manifest, plan, parts)
    write_reports(manifest, results.run)
    print_summary(make_summary(manifest, plan, results.run))
    print_missing(results.missing)
    tables = f"{manifest.project.reports}/COMPATIBILITY.md"
    print_line(f"merged {pluralize(len(parts), 'shard')}; tables: {tables}")
    return ExitCode.RED if results.missing else ExitCode.OK
