"""Read the results of the last export, without the stale ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.cache.states import read_tool_versions
from exporter.manifest import Manifest
from exporter.pipeline import BuildFolder, Results, drop_changed_files, filter_valid_results
from exporter.planning.plan import make_plan
from exporter.records.record import read_run

_MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidResults:
    """The valid results of the last export."""

    results: Results
    other_tools: str = ""
    """The tools with another version than the current one: `torch 2.12.1 (here 2.13.0)`."""


def read_results(manifest: Manifest) -> ValidResults:
    """Read the results and drop the stale ones, and those with a changed file.

    Raises:
        ExporterError: UNREADABLE if the results do not exist or are damaged.
    """
    build = BuildFolder.from_project(manifest.project)
    run = read_run(build.results)
    results = filter_valid_results(run, manifest, make_plan(manifest))
    return ValidResults(
        results=drop_changed_files(results, build.path),
        other_tools=find_other_tools(run.tools, read_tool_versions()),
    )


def find_other_tools(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """List the tools with another version than the results.

    A tool that is not installed is ignored, because the gate needs no PyTorch.

    Returns:
        The list, or "" if all versions are equal.
    """
    return ", ".join(
        f"{name} {before[name]} (here {version})"
        for name, version in now.items()
        if _MISSING not in (before.get(name, _MISSING), version) and before[name] != version
    )
