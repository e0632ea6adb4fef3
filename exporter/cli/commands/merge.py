"""`exporter merge`: the shards of an export as one result."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.build import BuildFolder
from exporter.build.shard_merge import merge_shards, read_shard_parts
from exporter.cli.options.selection import root_option
from exporter.cli.output.summary import show_summary
from exporter.cli.output.terminal import print_error, print_line
from exporter.cli.workflows.report import publish
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.records.baseline import parse_cell
from exporter.report.rows.opset_groups import group_by_opset


@click.command()
@click.argument(
    "folders",
    metavar="FOLDER...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@root_option
def command(folders: tuple[Path, ...], root: Path) -> int:
    """Put the build folders of all shards together.

    They are what `export --shard` filled; the tables are written from them. Every
    shard must have come, and every promised cell with them. Red cells are the gate's to judge:
    they do not change the exit code.
    """
    manifest = load_project(root)
    plan = make_plan(manifest)
    parts = read_shard_parts(folders, BuildFolder.from_project(manifest.project).path)
    results = merge_shards(manifest, plan, parts)
    publish(manifest, results.run)
    show_summary(manifest, plan, results.run)
    absent = group_by_opset(results.missing.items(), lambda item: parse_cell(item[0]), lambda item: item[1])
    for alike in absent:
        print_error(f"{alike.label}: no result: {alike.first[1]}")
    tables = f"{manifest.project.reports}/COMPATIBILITY.md"
    print_line(f"{pluralize(len(parts), 'shard')} merged; tables: {tables}")
    return ExitCode.RED if results.missing else ExitCode.OK
