"""`exporter check`: manifests and committed tables in under a second, for a pre-commit hook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from exporter.build import BuildFolder, filter_valid_results
from exporter.cache.fingerprint import file_digest
from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import print_error, print_line
from exporter.cli.workflows.report import PAGES, are_up_to_date, rendered
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan
from exporter.records.baseline import parse_cell, read_baseline
from exporter.records.record import read_run
from exporter.report.rows.opset_groups import group_by_opset
from exporter.report.written_pages import are_unmodified


@click.command()
@root_option
def command(root: Path) -> int:
    """Check the manifests; are baseline and tables up to date?

    They are where they speak of what the manifests promise now. Nothing is exported and torch is
    not needed. Where no export ran here, or the tables come from elsewhere, only the baseline can
    be compared.
    """
    manifest = load_project(root)
    problems = [*_unaccepted(manifest), *_stale_tables(manifest)]
    for problem in problems:
        print_error(problem)
    cells = len(make_plan(manifest).cells)
    models = pluralize(len(manifest.models), "model")
    print_line(f"{models}, {pluralize(cells, 'cell')}: {pluralize(len(problems), 'problem')}")
    return ExitCode.RED if problems else ExitCode.OK


def _unaccepted(manifest: Manifest) -> Iterator[str]:
    """Cells of which baseline and manifests do not both speak."""
    path = _reports(manifest) / "baseline.json"
    if not path.exists():
        return  # a project begins without one, and its gate says so
    accepted = {outcome.cell for outcome in read_baseline(path).cells}
    promised = {str(planned.cell) for planned in make_plan(manifest).cells}
    new = "is not in the baseline: run `exporter export`, and `exporter baseline` to accept it"
    gone = "is in the baseline and no longer promised: `exporter baseline` accepts that"
    for cells, what in ((promised - accepted, new), (accepted - promised, gone)):
        for alike in group_by_opset(sorted(cells), parse_cell, lambda _: ""):
            yield f"{alike.label} {what}"


def _stale_tables(manifest: Manifest) -> Iterator[str]:
    """How the tables differ from what the results would give, where they were written here."""
    build, reports = BuildFolder.from_project(manifest.project), _reports(manifest)
    if not build.results.exists() or not are_unmodified(build.path / PAGES, reports):
        return
    run = read_run(build.results)
    results = filter_valid_results(run, manifest, make_plan(manifest))
    if results.missing:
        for alike in group_by_opset(
            results.missing.items(), lambda item: parse_cell(item[0]), lambda item: item[1]
        ):
            yield f"{alike.label}: the tables are stale: {alike.first[1]}; run `exporter export`"
        return
    if are_up_to_date(manifest, results.run):
        return
    for name, text in sorted(rendered(manifest, results.run).items()):
        path = reports / name
        if not file_digest(path) or path.read_bytes() != text.encode():
            yield f"{manifest.project.reports}/{name} is stale; run `exporter report`"


def _reports(manifest: Manifest) -> Path:
    return Path(manifest.project.root) / manifest.project.reports
