"""Findings of the gate on the terminal.

In: findings. Out: a line for each group that is alike but for the opset, the worst first, and what
a reviewer needs to act on those that block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exporter.cli.output.terminal import print_line
from exporter.gate import GateFinding
from exporter.report import group_findings
from exporter.report.rows.finding_context import FindingContext, GateContext, find_context


def show_findings(findings: Sequence[GateFinding], known: GateContext | None = None) -> None:
    """Says each finding; alike ones of a model together.

    Args:
        findings: The worst first.
        known: Where models are promised, what was found, and since when; None: not told.
    """
    for alike in group_findings(findings):
        finding = alike.first
        colour = "green" if finding.is_improvement else "red" if finding.is_blocking else "yellow"
        warning = "" if finding.is_blocking else "warning: "
        change = f"{finding.before} -> {finding.after}"
        print_line(f"{alike.label}: {warning}{finding.kind}: {change}", color=colour)
        if finding.message:
            print_line(f"    {finding.message}")
        if known and finding.is_blocking and not finding.is_improvement:
            for hint in format_hints(find_context(alike.members, known)):
                print_line(f"    {hint}")


def format_hints(lead: FindingContext) -> Iterator[str]:
    """Where it is, since when, and how to see it again, each on a line."""
    if lead.places:
        line = f"promised at {', '.join(lead.places)}"
        yield f"{line}; in the model at {', '.join(lead.lines)}" if lead.lines else line
    if lead.since:
        yield lead.since
    if lead.reproduce:
        yield f"show it without this tool: {lead.reproduce}"
    elif lead.rerun:
        yield f"run it again: {lead.rerun}"
