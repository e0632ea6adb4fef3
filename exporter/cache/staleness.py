"""Decide whether a stored record is stale, and explain why.

If the state of a dependency is unknown, the record is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.cache.fingerprint import (
    ALL_FILES,
    ENVIRONMENT,
    LISTING,
    MISSING,
    THOROUGH,
    TOOL_PREFIX,
    read_loaded_state,
    read_source_state,
    read_variable_state,
)
from exporter.cache.search_path import SEARCH_PATH
from exporter.records.record import Record, Source, Status

#: Statuses that a retry may change. They are never final.
TRANSIENT_STATUSES = frozenset({Status.CRASH, Status.TIMEOUT, Status.KILLED, Status.UNAVAILABLE})

#: The end of a reason if a file changed during the export: its loaded version is unknown.
DURING_EXPORT = "while it was exported"
_REASONS = {
    "entry": "its manifest entry changed",
    "checks": "its tolerances changed",
    "device": "the definition of its device changed",
    ENVIRONMENT: "the environment variables or the sandbox of workers changed",
    THOROUGH: "it was not proved thoroughly",
}


class CurrentState:
    """The current project files and installed packages. Each one is read once.

    The overlay is the package folder of an environment that adds to the current one.
    """

    def __init__(self, root: Path, overlay: str = "") -> None:
        self._root = root
        self._overlay = overlay
        self._states: dict[str, str] = {}
        self._packages: dict[str, str] = {}

    def find_staleness_reason(self, record: Record, parts: Mapping[str, str]) -> str:
        """Return why a record is stale by its fingerprint and sources.

        The parts may be some of the current fingerprint of its cell.
        """
        for part, after in parts.items():
            before = record.fingerprint.get(part)
            if before == after:
                continue
            if part.startswith(TOOL_PREFIX):
                return _describe_change(part.removeprefix(TOOL_PREFIX), before or "", after)
            return _REASONS[part]
        for source in record.sources:
            if not source.state:
                return f"{source.file} changed {DURING_EXPORT}"
            if source.file not in self._states:
                self._states[source.file] = read_source_state(self._root / source.file)
            if (state := self._states[source.file]) != source.state:
                return _describe_source(source, state)
        for name, state in record.variables.items():
            if read_variable_state(name) != state:
                return f"the environment variable {name} changed"
        return ""

    def find_changed_package_reason(self, record: Record) -> str:
        """Return which package of the record changed, or "" if none did."""
        for name, before in record.packages.items():
            if (after := self._read_package(name)) != before:
                return _describe_change(name, before, after)
        return ""

    def list_differences(self, record: Record) -> list[str]:
        """Return the packages and variables that differ, with the recorded and current state."""
        packages = ((name, old) for name, old in record.packages.items() if "/" not in name)
        states = [(name, old, self._read_package(name)) for name, old in packages]
        states += [(name, old, read_variable_state(name)) for name, old in record.variables.items()]
        return [f"{name} `{old}`, now `{new}`" for name, old, new in states if old != new]

    def _read_package(self, name: str) -> str:
        if name not in self._packages:
            self._packages[name] = read_loaded_state(name, self._root, self._overlay)
        return self._packages[name]


def _describe_source(source: Source, state: str) -> str:
    """Return the change of a source, such as `data.json changed`."""
    folder, _, name = source.file.rpartition("/")
    if name == LISTING:
        return f"{folder or '.'} has other modules"
    if name == ALL_FILES:
        return f"{folder or '.'} has other files"
    if MISSING in (source.state, state):
        return f"{source.file} {'was added' if source.state == MISSING else 'is missing'}"
    return f"{source.file} changed"


def _describe_change(name: str, before: str, after: str) -> str:
    """Return `torch 2.12.1 -> 2.13.0`, or that the same version is another build."""
    if name == SEARCH_PATH:
        return f"Python searches for modules in {after}, before in {before}"
    if "/" in name:
        return f"{name} changed"
    old, new = (state.split(" ")[0] or "missing" for state in (before, after))
    return f"{name} {old} -> {new}" if old != new else f"{name} {new} is another build"
