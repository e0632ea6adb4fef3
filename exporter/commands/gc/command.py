"""`exporter gc`: remove built files of no cell, and entries above the store's limits."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from exporter.cli.options import root_option
from exporter.cli.output.tables import require_readable_files
from exporter.cli.output.terminal import print_line, print_table
from exporter.commands.gc.garbage import find_garbage, remove_garbage
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import format_bytes, pluralize
from exporter.manifest import load_project
from exporter.manifest.resolved.keys import Age
from exporter.manifest.syntax.fields import Memory
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.device_environments import list_garbage, remove_environment
from exporter.planning.plan import list_all_cells
from exporter.records.record import CellId
from exporter.store import StoreLimits
from exporter.store.project_store import open_store
from exporter.store.remote_store import RemoteStore


def _parse(field: Any) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a callback that validates the option like the project's setting."""

    def parse(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else TypeAdapter(field).validate_python(value)
        except ValidationError as error:
            raise click.BadParameter(error.errors()[0]["msg"].partition(", ")[2]) from None

    return parse


@click.command()
@root_option
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@click.option(
    "--store-size",
    metavar="SIZE",
    callback=_parse(Memory),
    help="Maximum size of the store, e.g. 5GiB.  [default: `store_size`, or 10GiB]",
)
@click.option(
    "--store-age",
    metavar="AGE",
    callback=_parse(Age),
    help="Maximum age of unused entries, e.g. 30d.  [default: 90d]",
)
@click.option(
    "--remote-size",
    metavar="SIZE",
    callback=_parse(Memory),
    help="Remove the least recently used entries of the remote store above this size.",
)
@click.option(
    "--remote-age",
    metavar="AGE",
    callback=_parse(Age),
    help="Remove entries of the remote store that were not used for this time.",
)
def gc(
    root: Path,
    *,
    dry_run: bool,
    store_size: int | None,
    store_age: float | None,
    remote_size: int | None,
    remote_age: float | None,
) -> int:
    """Remove built files that no manifest declares any more.

    Removed are models, opsets and cells that are in no manifest, weights that no file uses, the
    results of rehearsals, and environments that pyproject.toml does not declare.
    Files of declared cells are kept, even if they are stale. Other files are kept, too.

    Store entries unused for `--store-age` are removed first, then the least recently used entries
    until the store is smaller than `store_size`. A remote store, which other machines use, is
    changed only with `--remote-size` or `--remote-age`.
    """
    manifest = load_project(root, keep_invalid=True)
    require_readable_files(manifest)
    cells = list_all_cells(manifest)
    if not cells:
        message = "the manifests declare no cell; nothing was removed, to keep all files"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    if garbage := list_garbage(manifest.project):
        size = sum(environment.measure_size() for environment in garbage)
        if not dry_run:
            for environment in garbage:
                remove_environment(environment)
        removed = _format_removed(len(garbage), "environment", size, dry_run=dry_run)
        names = "; ".join(", ".join(environment.requirements) for environment in garbage)
        print_line(f"environments: {removed}: {names}")
    store = open_store(manifest.project, os.environ)
    build = BuildFolder.from_project(manifest.project)
    if build.path.exists():
        _clean_build(build, cells, dry_run=dry_run)
    else:
        print_line(f"nothing to remove: {build.path.name} does not exist")
    if store and store.path.is_dir():
        if store.is_read_only:
            print_line("store: is read-only; nothing was removed")
        else:
            limits = StoreLimits(
                size=store.limits.size if store_size is None else store_size,
                age=store.limits.age if store_age is None else store_age,
            )
            evicted = store.evict(limits, dry_run=dry_run)
            removed = _format_removed(evicted.cells, "result", evicted.bytes, dry_run=dry_run)
            print_line(f"store: {removed}; {format_bytes(evicted.remaining)} remain")
    if remote_size is not None or remote_age is not None:
        limits = StoreLimits(
            size=sys.maxsize if remote_size is None else remote_size,
            age=math.inf if remote_age is None else remote_age,
        )
        _clean_remote(store.remote if store else None, limits, dry_run=dry_run)
    return ExitCode.OK


def _clean_remote(remote: RemoteStore | None, limits: StoreLimits, *, dry_run: bool) -> None:
    """Evict entries from the remote store.

    Raises:
        ExporterError: MANIFEST without a remote store, ENVIRONMENT if it cannot be changed.
    """
    if remote is None:
        message = "--remote-size, --remote-age: the project has no remote store; set `store` to a"
        raise ExporterError(ExitCode.MANIFEST, f"{message} URL, such as s3://bucket/prefix")
    if remote.is_read_only:
        raise ExporterError(ExitCode.MANIFEST, f"{remote.label}: is read-only; nothing was removed")
    try:
        evicted = remote.evict(limits, dry_run=dry_run)
    except OSError as error:
        message = f"{remote.label}: {error}; run `exporter doctor` to test the access"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from None
    removed = _format_removed(evicted.cells, "result", evicted.bytes, dry_run=dry_run)
    print_line(f"remote store: {removed}; {format_bytes(evicted.remaining)} remain")


def _clean_build(build_folder: BuildFolder, cells: Iterable[CellId], *, dry_run: bool) -> None:
    with build_folder.lock():
        garbage = find_garbage(build_folder.path, cells)
        foreign = {item: build_folder.find_foreign_path(item.path) for item in garbage}
        items = [item for item in garbage if foreign[item] is None]
        if not dry_run:
            for item in items:
                remove_garbage(item)
    print_table(
        (
            item.path.relative_to(build_folder.path.parent).as_posix(),
            format_bytes(item.size),
            item.reason,
        )
        for item in items
    )
    for path in filter(None, foreign.values()):
        name = path.relative_to(build_folder.path.parent).as_posix()
        print_line(f"{name}: stays, since no export wrote it; remove it yourself")
    size = sum(item.size for item in items)
    print_line(_format_removed(len(items), "item", size, dry_run=dry_run))


def _format_removed(count: int, noun: str, size: int, *, dry_run: bool) -> str:
    if not count and not size:
        return "nothing to remove"
    verb = "would remove" if dry_run else "removed"
    return f"{verb} {pluralize(count, noun)} ({format_bytes(size)})"
