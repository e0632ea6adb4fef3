"""`exporter gc`: removes from the build folder what no promised cell needs."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options import root_option
from exporter.cli.terminal import aligned, plural, say
from exporter.errors import ExitCode, ExporterError
from exporter.manifest import load_project
from exporter.plan import make_plan
from exporter.report.figures import size
from exporter.run import BuildFolder, find_garbage, remove


@click.command("gc")
@root_option
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def command(root: Path, *, dry_run: bool) -> int:
    """Remove built files that no manifest promises any more.

    Models, opsets and cells that left the manifests go, and weights that no file refers to. What
    is promised stays, whether its result still holds or not; so does what no export made.
    """
    manifest = load_project(root)
    promised = [planned.cell for planned in make_plan(manifest).cells]
    if not promised:
        message = "no manifest promises a cell, so that everything would go; nothing was removed"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    build = BuildFolder.of(manifest.project)
    if not build.path.is_dir():
        say(f"nothing to remove: there is no {build.path.name}")
        return ExitCode.OK
    with build.locked():
        found = find_garbage(build.path, promised)
        if not dry_run:
            for garbage in found:
                remove(garbage)
    rows = [
        (garbage.path.relative_to(build.path.parent).as_posix(), size(garbage.size), garbage.why)
        for garbage in found
    ]
    for line in aligned(rows):
        say(line)
    freed = size(sum(garbage.size for garbage in found))
    verb = "would go and free" if dry_run else "removed, which freed"
    say(f"{plural(len(found), 'item')} {verb} {freed}" if found else "nothing to remove")
    return ExitCode.OK
