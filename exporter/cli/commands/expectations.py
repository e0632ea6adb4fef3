"""`exporter expectations`: what the manifests would have to foresee for the results to be green."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from exporter.cli.options.selection import get_today, root_option, selection_options
from exporter.cli.output.terminal import print_error, print_line
from exporter.cli.workflows.results import read_results
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.tools.expectations import propose_lists, replace_expectations


@click.command()
@selection_options
@click.option("--write", is_flag=True, help="Change the manifests instead of showing how.")
@click.option("--reason", default="", help="Why the failures are accepted, for new entries.")
@root_option
def command(selection: Selection, root: Path, write: bool, reason: str) -> int:
    """Propose `expect` from the results, as a patch.

    The exit code is 1 where there is something to change.
    """
    manifest = load_project(root)
    selected = {planned.cell for planned in make_plan(manifest, selection).selected}
    records = [item for item in read_results(manifest).run.records if item.cell in selected]
    files = _files(manifest)
    lists = propose_lists(manifest, records, get_today(), reason.strip(), files.values())
    if not lists:
        print_line("the results are as the manifests foresee")
        return ExitCode.OK
    new = [entry for _, entries in lists.values() for entry in entries if entry.index is None]
    unexplained = [entry for entry in new if not entry.expectation.reason]
    if write and unexplained:
        count = pluralize(len(unexplained), "new expectation")
        print_error(
            f"not written: {count} without a reason; say why the failures are accepted: "
            "--reason TEXT"
        )
        return ExitCode.RED
    for name, before in files.items():
        of_file = {id: new for id, new in lists.items() if new[0].manifest == name}
        after = replace_expectations(before, of_file) if of_file else before
        if write and after != before:
            write_text(Path(manifest.project.root) / name, after)
        elif not write:
            _show(name, before, after)
    if not write:
        return ExitCode.RED
    load_project(root)  # what was written is a manifest
    written = f"expectations of {pluralize(len(lists), 'model')} written"
    print_line(f"{written}; `exporter export` holds against them")
    return ExitCode.OK


def _files(manifest: Manifest) -> dict[str, str]:
    """The text of every manifest, by its name."""
    root = Path(manifest.project.root)
    names = dict.fromkeys(spec.manifest for spec in manifest.models)
    # By bytes: ends of lines stay what they are.
    return {name: (root / name).read_bytes().decode("utf-8") for name in names}


def _show(name: str, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
    )
    for line in lines:
        print_line(line)
