"""`exporter gc`: removes what no promised cell needs, and what is too much for the store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from exporter.build import BuildFolder, find_garbage, remove_garbage
from exporter.cache.store import Store
from exporter.cli.options.selection import root_option
from exporter.cli.options.store import limit_options, open_limited_store
from exporter.cli.output.terminal import align_columns, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text_format import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.records.record import CellId
from exporter.report.text.number_format import size


@click.command("gc")
@root_option
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@limit_options
def command(root: Path, *, dry_run: bool, store_size: int | None, store_age: float | None) -> int:
    """Remove built files that no manifest promises any more.

    Models, opsets and cells that left the manifests go, and weights that no file refers to. What
    is promised stays, whether its result still holds or not; so does what no export made.

    Of the store goes what nobody used for as long as `store_age` says, and then what was not used
    for longest, until it takes no more than `store_size`.
    """
    manifest = load_project(root)
    promised = [planned.cell for planned in make_plan(manifest).cells]
    if not promised:
        message = "no manifest promises a cell, so that everything would go; nothing was removed"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    store = open_limited_store(manifest.project, store_size, store_age)
    build = BuildFolder.from_project(manifest.project)
    if build.path.exists():
        _clear(build, promised, dry_run=dry_run)
    else:
        print_line(f"nothing to remove: there is no {build.path.name}")
    if store and store.path.is_dir():
        _bound(store, dry_run=dry_run)
    return ExitCode.OK


def _clear(build: BuildFolder, promised: Iterable[CellId], *, dry_run: bool) -> None:
    with build.lock():
        found = find_garbage(build.path, promised)
        if not dry_run:
            for garbage in found:
                remove_garbage(garbage)
    rows = [
        (garbage.path.relative_to(build.path.parent).as_posix(), size(garbage.size), garbage.why)
        for garbage in found
    ]
    for line in align_columns(rows):
        print_line(line)
    freed = size(sum(garbage.size for garbage in found))
    verb = "would go and free" if dry_run else "removed, which freed"
    print_line(f"{pluralize(len(found), 'item')} {verb} {freed}" if found else "nothing to remove")


def _bound(store: Store, *, dry_run: bool) -> None:
    if store.is_read_only:
        print_line("store: is only read, and stays as it is")
        return
    freed = store.evict(dry_run=dry_run)
    verb = "would go and free" if dry_run else "removed, which freed"
    gone = f"{pluralize(freed.cells, 'result')} {verb} {size(freed.bytes)}"
    found = gone if freed.cells or freed.bytes else "nothing to remove"
    print_line(f"store: {found}; {size(freed.remaining)} stay")
