"""Warnings about stored results: other tools, and cells without a result."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.cli.output.terminal import print_error
from exporter.records.record import CellId
from exporter.report.rows.opset_groups import group_by_opset
from exporter.usecases.current_results import ValidResults


def print_result_notes(current: ValidResults) -> None:
    """Print the tools with another version, and the cells without a result."""
    if current.other_tools:
        print_error(
            f"warning: the results were created with {current.other_tools}; run `exporter export` "
            "to prove them with the current tools"
        )
    print_missing(current.results.missing)


def print_missing(missing: Mapping[CellId, str]) -> None:
    """Print the cells without a result and the reason, one line per group."""
    for group in group_by_opset(missing.items(), lambda item: item[0], lambda item: item[1]):
        print_error(f"{group.label}: no result: {group.first[1]}")
