"""Wait until a file changes that the selected results depend on.

The files are compared every 50 ms by their kernel metadata. That costs 1 µs for each file and needs
neither a package nor a service of the system, so it also works on network drives.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from exporter.cache.states import (
    hash_source,
    have_tools_changed,
    list_package_folders,
    read_source_state,
    split_listing,
)
from exporter.cli.options import read_environment_names
from exporter.cli.output.export_result import describe_tables, print_result
from exporter.cli.output.line_progress import LineProgress
from exporter.cli.output.tables import print_file_problems
from exporter.cli.output.terminal import print_line, print_problem
from exporter.core.errors import ExitCode, ExporterError, shorten_problems
from exporter.core.text import pluralize
from exporter.core.toml_table import SETTINGS_FILE, read_setting
from exporter.export_options import ExportOptions
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.planning import Selection
from exporter.processes import ProcessStarter
from exporter.program import ExportResult
from exporter.program import export as run_export

#: How often cells run again at once because a file changed meanwhile: a model may change its own.
_MAX_REPEATS = 2
#: Seconds between two comparisons, and without another change until a run starts: an editor and
#: git replace several files one after the other.
_INTERVAL = 0.05
#: The largest share of a core that comparisons of many files use.
_SHARE = 0.05


class WatchedFiles:
    """The manifests and all files that the selected results depend on.

    Args:
        root: The project's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._sources: set[str] = set()
        self._packages = {f"{folder}/" for folder in list_package_folders()}
        self._stamps = self._read_stamps()

    @property
    def count(self) -> int:
        return len(self._stamps)

    def update(self, result: ExportResult | None) -> list[str]:
        """Add the dependencies of the selected cells; None if the export failed.

        Returns:
            The files that changed since the export read them.
        """
        states = _list_sources(result) if result else set()
        before = self._stamps
        self._sources |= {name for name, _ in states}
        # A file that changes after this line is found in the next comparison.
        self._stamps = self._read_stamps()
        new = {name for name, _ in states} - before.keys()
        after = {name: stamp for name, stamp in self._stamps.items() if name not in new}
        differ = {
            name
            for name, state in states
            if name in new and read_source_state(self._root / name, state) != state
        }
        return sorted({*differ, *_compare(before, after)})

    def wait(self) -> list[str]:
        """Return the changed files after a change, when no other change follows."""
        pause = _INTERVAL
        while True:
            time.sleep(pause)
            started = time.monotonic()
            stamps = self._read_stamps()
            pause = max(_INTERVAL, (time.monotonic() - started) / _SHARE)
            if stamps == self._stamps:
                continue
            time.sleep(_INTERVAL)
            while (following := self._read_stamps()) != stamps:
                stamps = following
                time.sleep(_INTERVAL)
            changed = _compare(self._stamps, stamps)
            self._stamps = stamps
            if changed:  # else the change was undone
                return changed

    def needs_restart(self, changed: Iterable[str]) -> bool:
        """Return True if loaded packages or this tool may have changed."""
        return not self._packages.isdisjoint(changed) or have_tools_changed()

    def _read_stamps(self) -> dict[str, object]:
        one = read_setting(self._root, "manifests", "manifests")
        folders = read_setting(self._root, "manifests", [one])
        manifests = [path for each in folders for path in (self._root / each).rglob("*.toml")]
        names = {SETTINGS_FILE, *map(str, manifests), *self._packages, *self._sources}
        return {name: self._read_stamp(name) for name in names}

    def _read_stamp(self, name: str) -> object:
        """Return a value that changes if the file, link or list of names changes."""
        if split_listing(name):
            return hash_source(self._root / name)
        try:
            state = (self._root / name).lstat()
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(state.st_mode):
            # An installation renames folders in the folder of a package.
            return ("folder", state.st_ctime_ns if name in self._packages else 0)
        return (state.st_mode, state.st_size, state.st_ino, state.st_ctime_ns)


def _compare(before: dict[str, object], after: dict[str, object]) -> list[str]:
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def _list_sources(result: ExportResult) -> set[tuple[str, str]]:
    """Return the path and the recorded state of each dependency of the selected cells."""
    stored = StoredRecords(BuildFolder.from_project(result.manifest.project))
    states: set[tuple[str, str]] = set()
    for record in filter(None, (stored.get(planned.cell) for planned in result.plan.selected)):
        states |= {(source.file, source.state) for source in record.sources}
        # Files outside of the project.
        outside = {name: state for name, state in record.packages.items() if "/" in name}
        states |= {(name, state.removeprefix("file ")) for name, state in outside.items()}
    return states


def export_changes(
    root: Path, options: ExportOptions, starter: ProcessStarter, *, timings: bool
) -> NoReturn:
    """Export after each change until Ctrl-C.

    Raises:
        ExporterError: The first export cannot run, unless an edit of a manifest can repair that.
    """
    watched = WatchedFiles(root)
    variables = read_environment_names(root)
    repeats, is_first = 0, True
    while True:
        starter.prepare()  # a model, or the system, may have ended the fork server
        result = None
        try:
            result = _export(root, options, starter, timings=timings)
        except ExporterError as error:
            if is_first and error.exit_code != ExitCode.MANIFEST:
                raise
            for problem in shorten_problems(error.problems):
                print_problem(problem)
        if result:
            # Cells that become green stay selected.
            # The next exports run only stale cells, and the same ones.
            if options.selection.last_failed or options.selection.changed:
                cells = tuple(str(planned.cell) for planned in result.plan.selected)
                options = replace(options, selection=Selection(patterns=cells))
            options = replace(options, force=False)
        is_first = False
        changed = watched.update(result)
        if changed and repeats < _MAX_REPEATS:
            repeats += 1
            print_line(f"{changed[0]}: changed during the export; comparing again")
            continue
        if changed:
            print_line(f"{changed[0]}: changes in each export; save a file to run its cells again")
        repeats = 0
        print_line(f"watching {pluralize(watched.count, 'path')}; Ctrl-C ends")
        sys.stdout.flush()
        changed = watched.wait()
        if watched.needs_restart(changed) or read_environment_names(root) != variables:
            print_line("packages or variables changed; starting again")
            sys.stdout.flush()
            starter.close()
            os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same command


def _export(
    root: Path, options: ExportOptions, starter: ProcessStarter, *, timings: bool
) -> ExportResult:
    """Export, and print the verdicts of the cells that ran."""
    started = time.monotonic()
    observer = LineProgress(explain=True)
    result = run_export(root, options, observer, starter, os.environ)
    ran = tuple(each for each in result.plan.selected if each.cell in observer.cells)
    shown = replace(result, plan=replace(result.plan, selected=ran))
    if ran:
        print_result(shown, started, timings=timings, quiet=True, has_tables=False)
        if not result.has_tables:
            print_line(describe_tables(result))
    else:
        print_file_problems(result.manifest)
        print_line("no selected cell depends on a change")
    return result
