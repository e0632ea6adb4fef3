"""Whether a stored record still holds, or why its cell must run.

In: a stored `Record`, today's fingerprint of its cell, and the files of today. Out: an empty text,
or the reason in a line.

This decides which cells an export leaves alone, and which earlier records a report and a gate may
still show. In doubt, a cell runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.cache.fingerprint import (
    LISTING,
    THOROUGH,
    TOOL,
    file_digest,
    loaded_state,
)
from exporter.records.record import Record, Status

#: What another try may settle otherwise: it says nothing of the model that must be so.
PASSING = frozenset({Status.CRASH, Status.TIMEOUT, Status.KILLED, Status.UNAVAILABLE})

#: What was loaded then may not be what is there now.
WHILE = "while it was exported"
_REASONS = {
    "entry": "its manifest entry changed",
    "checks": "its tolerances changed",
    "device": "the definition of its device changed",
    THOROUGH: "it was not proved thoroughly",
}


class CurrentState:
    """The project's files and the installed packages as they are now, each looked at once.

    Args:
        root: The project's root, which the sources of records are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._digests: dict[str, str] = {}

    def digest(self, file: str) -> str:
        """The sha256 of a file of the project; empty where there is none."""
        if file not in self._digests:
            self._digests[file] = file_digest(self._root / file)
        return self._digests[file]

    def why_stale(self, record: Record, parts: Mapping[str, str]) -> str:
        """Why the record no longer speaks for its cell; empty where it does.

        Args:
            record: As it was stored.
            parts: The fingerprint of its cell today, or those parts of it that count.
        """
        for part, now in parts.items():
            before = record.fingerprint.get(part)
            if before != now:
                return _changed(part, before, now)
        for source in record.sources:
            if not source.sha256:
                return f"{source.file} changed {WHILE}"
            if self.digest(source.file) != source.sha256:
                return _source_changed(source.file)
        return ""

    def why_other_packages(self, record: Record) -> str:
        """Which package the model was made with is another one today; empty where none is."""
        for name, before in record.packages.items():
            if (now := loaded_state(name, self._root)) != before:
                return _moved(name, before, now)
        return ""


def _changed(part: str, before: str | None, now: str) -> str:
    if not part.startswith(TOOL):
        return _REASONS[part]
    return _moved(part.removeprefix(TOOL), before or "", now)


def _moved(name: str, before: str, now: str) -> str:
    """`torch 2.12.1 -> 2.13.0`; of one version in two builds, that it is another one."""
    if "/" in name:
        return f"{name} changed"
    old, new = (state.split(" ")[0] or "missing" for state in (before, now))
    return f"{name} {old} -> {new}" if old != new else f"{name} {new} is another build"


def _source_changed(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder or '.'} has other modules" if name == LISTING else f"{file} changed"
