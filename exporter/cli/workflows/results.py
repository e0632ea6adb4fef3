"""The results that the gate, the baseline and the reports start from.

In: a manifest. Out: the records of `results.json` that still speak for their cells; the others are
named on stderr and count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.build import BuildFolder, Results, filter_valid_results
from exporter.cache.fingerprint import read_tool_versions
from exporter.cli.output.terminal import print_error
from exporter.manifest import Manifest
from exporter.planning.plan import make_plan
from exporter.records.baseline import parse_cell
from exporter.records.record import read_run
from exporter.report.rows.opset_groups import group_by_opset

_MISSING = "missing"


def other_tools(made: Mapping[str, str], today: Mapping[str, str]) -> str:
    """Tools that results were made with and that have another version here; empty without any.

    What is not installed here is no other version: a gate needs no PyTorch.
    """
    pairs = ((name, made.get(name, _MISSING), here) for name, here in today.items())
    return ", ".join(
        f"{name} {before} (here {here})"
        for name, before, here in pairs
        if _MISSING not in (before, here) and before != here
    )


def read_results(manifest: Manifest) -> Results:
    """Reads the results and leaves out those that a change since the export made void.

    Raises:
        ExporterError: UNREADABLE, where there are none or they are damaged.
    """
    run = read_run(BuildFolder.from_project(manifest.project).results)
    if others := other_tools(run.tools, read_tool_versions()):
        print_error(
            f"warning: the results were made with {others}; `exporter export` proves them anew"
        )
    results = filter_valid_results(run, manifest, make_plan(manifest))
    for alike in group_by_opset(
        results.missing.items(), lambda item: parse_cell(item[0]), lambda item: item[1]
    ):
        print_error(f"{alike.label}: no result: {alike.first[1]}")
    return results
