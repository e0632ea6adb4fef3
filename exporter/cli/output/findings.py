"""Print the findings of the gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exporter.cli.output.terminal import print_line
from exporter.gate import GateFinding
from exporter.report import group_findings
from exporter.report.rows.failure_clusters import name_subject
from exporter.report.rows.finding_context import (
    FindingContext,
    GateContext,
    find_context,
    shorten_diff,
)

#: Lines of a difference in a terminal.
_DIFF_LINES = 12


def show_findings(findings: Sequence[GateFinding], context: GateContext | None = None) -> None:
    """Print the findings in groups.

    Args:
        findings: The worst first.
        context: The manifest and the records, for hints. None for no hints.
    """
    for group in group_findings(findings):
        finding = group.first
        color = "green" if finding.is_improvement else "red" if finding.is_blocking else "yellow"
        warning = "" if finding.is_blocking else "warning: "
        change = f"{finding.before} -> {finding.after}"
        print_line(f"{name_subject(group)}: {warning}{finding.kind}: {change}", color=color)
        if finding.cause:
            print_line(f"    {finding.cause}", color=color, wraps=True)
        if finding.message:
            print_line(f"    {finding.message}", wraps=True)
        if context and finding.is_blocking and not finding.is_improvement:
            for hint in format_hints(find_context(group.members, context)):
                print_line(f"    {hint}", wraps=True)
        if finding.cause:
            for line in shorten_diff(finding.cause.diff, _DIFF_LINES).splitlines():
                print_line(f"        {line}")


def format_hints(context: FindingContext) -> Iterator[str]:
    """Yield the locations, the last green commit and the command to reproduce it."""
    if context.settings:
        yield "restore the setting, or change it in a branch of its own"
    if context.locations:
        line = f"promised at {', '.join(context.locations)}"
        yield f"{line}; in the model at {', '.join(context.lines)}" if context.lines else line
    if context.acceptance:
        yield context.acceptance
    if context.repro_command:
        yield f"reproduce: {context.repro_command}"
    elif context.export_command:
        yield f"run again: {context.export_command}"
