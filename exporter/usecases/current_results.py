"""Read the results of the last export, without the stale ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.cache.states import read_tool_versions
from exporter.manifest import Manifest
from exporter.pipeline import BuildFolder, Results, drop_changed_files, filter_valid_results
from exporter.planning.plan import Plan, make_plan
from exporter.records.baseline import read_baseline
from exporter.records.record import read_run
from exporter.report.rows.cells import group_by_opset
from exporter.usecases.report_pages import ReportPaths, are_pages_unmodified, find_stale_pages

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


def find_inconsistencies(manifest: Manifest) -> Iterator[str]:
    """Yield a message for each problem of the baseline and of the pages."""
    plan = make_plan(manifest)
    yield from _compare_baseline(manifest, plan)
    yield from _compare_pages(manifest, plan)


def _compare_baseline(manifest: Manifest, plan: Plan) -> Iterator[str]:
    path = ReportPaths(manifest.project).baseline
    if not path.exists():
        return  # a new project has no baseline; its gate reports that
    accepted = {outcome.cell for outcome in read_baseline(path).cells}
    planned = {planned.cell for planned in plan.cells}
    added = "is not in the baseline; run `exporter export` and `exporter baseline` to accept it"
    removed = "is in the baseline but in no manifest; run `exporter baseline` to remove it"
    for cells, problem in ((planned - accepted, added), (accepted - planned, removed)):
        in_order = sorted(cells, key=lambda cell: cell.sort_key)
        for group in group_by_opset(in_order, lambda cell: cell, lambda _: ""):
            yield f"{group.label} {problem}"


def _compare_pages(manifest: Manifest, plan: Plan) -> Iterator[str]:
    """Yield the stale pages, if this machine wrote the pages."""
    build = BuildFolder.from_project(manifest.project)
    if not build.results.exists() or not are_pages_unmodified(manifest.project):
        return
    results = filter_valid_results(read_run(build.results), manifest, plan)
    results = drop_changed_files(results, build.path)
    if results.missing:
        cells = results.missing.items()
        for group in group_by_opset(cells, lambda item: item[0], lambda item: item[1]):
            reason = group.first[1]
            yield f"{group.label}: the tables are stale: {reason}; run `exporter export`"
        return
    for name in find_stale_pages(manifest, results.run):
        yield f"{manifest.project.reports}/{name} is stale; run `exporter report`"
