"""Wait until a file changes that the selected results depend on.

The files are compared every 50 ms by their kernel metadata. That costs 1 µs for each file and needs
neither a package nor a service of the system, so it also works on network drives.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from pathlib import Path

from exporter.api.export_run import ExportResult
from exporter.cache.states import (
    hash_source,
    have_tools_changed,
    list_package_folders,
    read_source_state,
    split_listing,
)
from exporter.core.toml_table import SETTINGS_FILE, read_setting
from exporter.pipeline.build_folder import BuildFolder, StoredRecords

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
        folder = read_setting(self._root, "manifests", "manifests")
        manifests = (self._root / folder).rglob("*.toml")
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
