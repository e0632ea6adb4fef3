"""Findings of the gate on the terminal.

In: findings. Out: a line for each group that is alike but for the opset, the worst first.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.cli.terminal import say
from exporter.gate import Finding
from exporter.report import fold_findings


def show_findings(findings: Sequence[Finding]) -> None:
    """Says each finding; alike ones of a model together."""
    for alike in fold_findings(findings):
        finding = alike.first
        colour = "green" if finding.is_good_news else "red" if finding.blocks else "yellow"
        warning = "" if finding.blocks else "warning: "
        change = f"{finding.before} -> {finding.after}"
        say(f"{alike.label}: {warning}{finding.kind}: {change}", colour=colour)
        if finding.message:
            say(f"    {finding.message}")
