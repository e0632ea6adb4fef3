"""The earlier acceptance of a cell, for committed pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.text import join_lines
from exporter.gate import NOT_ACCEPTED
from exporter.records.baseline import Baseline, CellOutcome, extract_outcome
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
        trend: Sequence[TrendPoint] = (),
        commit: str = "",
    ) -> None:
        """Store the accepted state.

        Args:
            baseline: The accepted outcomes.
            trend: The figures over commits, for pages that are not committed.
            commit: The commit of the results, for pages that are not committed.
        """
        self.trend = tuple(trend)
        self.commit = commit
        self.baseline = baseline
        self._outcomes: Mapping[CellId, CellOutcome] = baseline.by_cell() if baseline else {}

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
        """Return the accepted outcome, or the reason for accepting the current one."""
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
        return f"{outcome}{f': {reason}' if reason else ''}"


def format_changed_tools(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the tools with a different version: `torch 2.12.0 to 2.13.0`.

    Returns:
        "" if the versions before are unknown.
    """
    names = {**before, **after} if before else {}
    pairs = {name: (before.get(name, "none"), after.get(name, "none")) for name in names}
    return join_lines(", ".join(f"{name} {a} to {b}" for name, (a, b) in pairs.items() if a != b))


def format_export_tools(tools: Mapping[str, str]) -> str:
    """Return the versions of the tools that create and run the files."""
    return join_lines(", ".join(f"{name} {tools[name]}" for name in _EXPORT_TOOLS if name in tools))
