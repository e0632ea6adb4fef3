"""The results that the gate, the baseline and the reports start from.

In: a manifest. Out: the records of `results.json` that still speak for their cells; the others are
named on stderr and count as missing.
"""

from __future__ import annotations

from exporter.baseline import parse_cell
from exporter.cli.terminal import complain
from exporter.manifest import Manifest
from exporter.plan import make_plan
from exporter.record import read_run
from exporter.report.fold import fold
from exporter.run import BuildFolder, Results, still_valid


def read_results(manifest: Manifest) -> Results:
    """Reads the results and leaves out those that a change since the export made void.

    Raises:
        ExporterError: UNREADABLE, where there are none or they are damaged.
    """
    run = read_run(BuildFolder.of(manifest.project).results)
    results = still_valid(run, manifest, make_plan(manifest))
    for alike in fold(
        results.missing.items(), lambda item: parse_cell(item[0]), lambda item: item[1]
    ):
        complain(f"{alike.label}: no result: {alike.first[1]}")
    return results
