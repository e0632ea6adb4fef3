"""The versions of the tools, side by side for all toolchains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.cache.fingerprint import extract_tool_versions
from exporter.manifest.syntax.values import split_device
from exporter.records.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTable:
    """One row for each tool."""

    toolchains: tuple[str, ...]
    """The toolchains with results."""
    rows: tuple[tuple[str, ...], ...]
    """The tool, its version in the project's own packages, and its version in each toolchain."""


def build_tool_table(run: RunRecord) -> ToolTable:
    """Return the versions of the tools that created the results."""
    by_toolchain: dict[str, Mapping[str, str]] = {}
    for record in run.records:
        name = split_device(record.cell.device)[1]
        if name and (versions := extract_tool_versions(record.fingerprint)):
            by_toolchain[name] = versions
    names = tuple(sorted(by_toolchain))
    return ToolTable(
        toolchains=names,
        rows=tuple(
            (tool, version, *(by_toolchain[name].get(tool, version) for name in names))
            for tool, version in sorted(run.tools.items())
        ),
    )
