"""What a person accepted of a cell before, for pages that git holds.

In: the baseline and the history beside it, and today's `Cell`. Out: a sentence. It names no commit
and no day: a page is written before its own commit is. `exporter gate` knows those.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.sanitize import one_line
from exporter.gate import NOT_ACCEPTED
from exporter.records.baseline import Baseline, CellOutcome, outcome_of
from exporter.records.history import Change, History, HistoryEntry
from exporter.report.rows.cells import Cell

#: The tools that make and run the files.
_EXPORT = ("torch", "onnx", "onnxscript", "onnxruntime")
AS_ACCEPTED = "as accepted"


class AcceptanceHistory:
    """What was accepted; without a baseline nothing is said."""

    def __init__(self, baseline: Baseline | None = None, history: History | None = None) -> None:
        self.baseline = baseline
        self.history = history or History()
        self._tools = baseline.tools if baseline else {}
        self._known: Mapping[str, CellOutcome] | None = baseline.by_cell() if baseline else None
        self._changes: dict[str, tuple[int, Change]] = {
            change.cell: (place, change)
            for place, entry in enumerate(self.history.entries)
            for change in entry.changes
        }

    def accepted(self, cell: Cell) -> str:
        """The outcome in the baseline; `AS_ACCEPTED` where it is today's."""
        if self._known is None or cell.record is None:
            return ""
        known = self._known.get(str(cell.id))
        if known is None:
            return NOT_ACCEPTED
        return AS_ACCEPTED if str(known) == str(outcome_of(cell.record)) else str(known)

    def since(self, cell: Cell) -> str:
        """What it was when it was accepted last, or since when it is as it is."""
        said = self.accepted(cell)
        if said == NOT_ACCEPTED:
            return "never accepted: it is not in the baseline"
        if said != AS_ACCEPTED or self._known is None:
            tools = export_tools(self._tools)
            return f"{said} in the baseline{f', with {tools}' if tools else ''}" if said else ""
        reason = one_line(self._known[str(cell.id)].reason)
        if not cell.is_red and not reason:
            return ""  # what was foreseen is as it should be
        return f"{said}{self._last_change(str(cell.id))}{f': {reason}' if reason else ''}"

    def _last_change(self, cell: str) -> str:
        """`, since baseline 3 of 5 (before: pass; torch 2.12.0 to 2.13.0)`."""
        entries = self.history.entries
        if cell not in self._changes:
            return ", since the first baseline" if entries else ""
        place, change = self._changes[cell]
        tools = other_tools(entries[place - 1].tools if place else {}, entries[place])
        before = one_line(change.before) or "not promised"
        why = f"before: {before}{f'; {tools}' if tools else ''}"
        return f", since baseline {place + 1} of {len(entries)} ({why})"


def other_tools(before: Mapping[str, str], entry: HistoryEntry) -> str:
    """Tools that are others than before: `torch 2.12.0 to 2.13.0`; nothing for the first entry."""
    names = {**before, **entry.tools} if before else {}
    pairs = {name: (before.get(name, "none"), entry.tools.get(name, "none")) for name in names}
    return one_line(", ".join(f"{name} {a} to {b}" for name, (a, b) in pairs.items() if a != b))


def export_tools(tools: Mapping[str, str]) -> str:
    """The versions of those that make and run the files."""
    return one_line(", ".join(f"{name} {tools[name]}" for name in _EXPORT if name in tools))
