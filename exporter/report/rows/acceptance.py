"""The earlier acceptance of a cell, for committed pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.text import join_lines
from exporter.gate import NOT_ACCEPTED
from exporter.records.baseline import Baseline, CellOutcome, extract_outcome
from exporter.records.history import History, HistoryEntry, OutcomeChange
from exporter.records.record import CellId
from exporter.records.trends import TrendPoint
from exporter.report.rows.cells import Cell

#: Tools that create and run the files.
_EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime")
AS_ACCEPTED = "as accepted"


class AcceptanceHistory:
    """The accepted outcomes; without a baseline, all texts are empty."""

    def __init__(
        self,
        baseline: Baseline | None = None,
        history: History | None = None,
        trend: Sequence[TrendPoint] = (),
        commit: str = "",
    ) -> None:
        """Store the accepted states.

        Args:
            baseline: The accepted outcomes.
            history: The accepted baselines without their commits.
            trend: The figures over commits, for pages that are not committed.
            commit: The commit of the results, for pages that are not committed.
        """
        self.trend = tuple(trend)
        self.commit = commit
        self.baseline = baseline
        self.history = history or History()
        self._outcomes: Mapping[CellId, CellOutcome] = baseline.by_cell() if baseline else {}
        self._changes: dict[CellId, tuple[int, OutcomeChange]] = {
            change.cell: (index, change)
            for index, entry in enumerate(self.history.entries)
            for change in entry.changes
        }

    def find_outcome(self, cell: Cell) -> str:
        """Return the outcome in the baseline.

        Returns:
            `AS_ACCEPTED` if the current outcome is equal, or "" without a baseline or a record.
        """
        if self.baseline is None or cell.record is None:
            return ""
        accepted = self._outcomes.get(cell.id)
        if accepted is None:
            return NOT_ACCEPTED
        is_equal = str(accepted) == str(extract_outcome(cell.record))
        return AS_ACCEPTED if is_equal else str(accepted)

    def is_changed(self, cell: Cell) -> bool:
        """Return whether the baseline has another outcome for the cell, or none."""
        return self.find_outcome(cell) not in ("", AS_ACCEPTED)

    def describe(self, cell: Cell) -> str:
        """Return the accepted outcome, or since when the current one is accepted."""
        outcome = self.find_outcome(cell)
        if self.baseline is None or not outcome:
            return ""
        if outcome == NOT_ACCEPTED:
            return "never accepted: it is not in the baseline"
        if outcome != AS_ACCEPTED:
            tools = format_export_tools(self.baseline.tools)
            return f"{outcome} in the baseline{f', with {tools}' if tools else ''}"
        reason = join_lines(self._outcomes[cell.id].reason)
        if not cell.is_red and not reason:
            return ""  # a foreseen failure that is accepted needs no text
        return f"{outcome}{self._describe_change(cell.id)}{f': {reason}' if reason else ''}"

    def _describe_change(self, cell: CellId) -> str:
        """Return `, since baseline 3 of 5 (before: pass; torch 2.12.0 to 2.13.0)`."""
        entries = self.history.entries
        if cell not in self._changes:
            return ", since the first baseline" if entries else ""
        index, change = self._changes[cell]
        tools = format_changed_tools(entries[index - 1].tools if index else {}, entries[index])
        before = join_lines(change.before) or "not promised"
        details = f"before: {before}{f'; {tools}' if tools else ''}"
        return f", since baseline {index + 1} of {len(entries)} ({details})"


def format_changed_tools(before: Mapping[str, str], entry: HistoryEntry) -> str:
    """Return the tools with a different version: `torch 2.12.0 to 2.13.0`.

    Returns:
        "" for the first entry.
    """
    names = {**before, **entry.tools} if before else {}
    pairs = {name: (before.get(name, "none"), entry.tools.get(name, "none")) for name in names}
    return join_lines(", ".join(f"{name} {a} to {b}" for name, (a, b) in pairs.items() if a != b))


def format_export_tools(tools: Mapping[str, str]) -> str:
    """Return the versions of the tools that create and run the files."""
    return join_lines(", ".join(f"{name} {tools[name]}" for name in _EXPORT_TOOLS if name in tools))
