"""`exporter expectations`: print the expectations that make the results green."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.api.gate_run import read_results
from exporter.cache.noop_snapshot import get_today
from exporter.cli.options import root_option, selection_options
from exporter.cli.output.tables import open_project, print_result_notes
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.tools.expectations import format_list, propose_lists


@click.command()
@selection_options
@click.option("--reason", default="", help="The reason of new entries.")
@root_option
def expectations(selection: Selection, root: Path, reason: str) -> int:
    """Print the lists of `expect` that match the results.

    Paste them into the manifests. The exit code is 1 if a list differs from the present one.
    """
    loaded = open_project(root)
    # An expectation must not make an invalid entry green.
    valid = tuple(spec for spec in loaded.models if not spec.problems)
    manifest = loaded.model_copy(update={"models": valid})
    selected = {planned.cell for planned in make_plan(manifest, selection).selected}
    current = read_results(manifest)
    print_result_notes(current)
    records = [record for record in current.results.run.records if record.cell in selected]
    names = dict.fromkeys(spec.manifest for spec in manifest.models)
    texts = [(Path(manifest.project.root) / name).read_text(encoding="utf-8") for name in names]
    lists = propose_lists(manifest, records, get_today(), reason.strip(), texts)
    if not lists:
        print_line("the expectations match the results")
        return ExitCode.OK
    for spec, entries in lists.values():
        print_line(f"# {spec.location}: [models.{spec.id}]")
        print_line(f"{format_list(spec, entries)}\n")
    fix = f"paste `expect` into the {pluralize(len(lists), 'entry', 'entries')}, and run the export"
    print_error(fix if reason else f"{fix}; --reason TEXT fills in the reason of new entries")
    return ExitCode.RED
