"""`exporter baseline`: accepts the results as they are."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.baseline import Baseline, outcomes_of, read_baseline, write_baseline
from exporter.cli.findings import show_findings
from exporter.cli.options import root_option
from exporter.cli.results import read_results
from exporter.cli.terminal import complain, plural, say
from exporter.errors import ExitCode
from exporter.gate import accept_all, judge
from exporter.manifest import load_project
from exporter.plan import make_plan
from exporter.record import RunRecord


@click.command()
@root_option
def command(root: Path) -> int:
    """Accept the results as the new baseline."""
    manifest = load_project(root)
    results = read_results(manifest)
    if results.missing:
        count = plural(len(results.missing), "promised cell")
        complain(f"not accepted: {count} without a result; run `nox -s export` first")
        return ExitCode.RED
    planned = {str(planned.cell) for planned in make_plan(manifest).cells}
    # What the manifests no longer promise is no longer accepted either.
    kept = tuple(record for record in results.run.records if str(record.cell) in planned)
    run = results.run.model_copy(update={"records": kept})
    path = Path(manifest.project.root) / manifest.project.reports / "baseline.json"
    before, gate = _accepted_before(path, run), manifest.project.gate
    show_findings(judge(before, run, planned, gate))
    write_baseline(path, accept_all(before, outcomes_of(run), run.tools, gate))
    say(f"accepted {plural(len(kept), 'cell')}: {manifest.project.reports}/baseline.json")
    return ExitCode.OK


def _accepted_before(path: Path, run: RunRecord) -> Baseline:
    if path.exists():
        return read_baseline(path)
    return Baseline(tools=run.tools, cells=())
