"""`exporter expectations`: propose the expectations that make the results green."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from exporter.cli.options.selection import root_option, selection_options
from exporter.cli.output.manifest_problems import open_project
from exporter.cli.output.result_notes import print_result_notes
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.atomic_files import write_text
from exporter.core.clock import get_today
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.tools.expectations import propose_lists, replace_expectations
from exporter.usecases.current_results import read_results


@click.command()
@selection_options
@click.option("--write", is_flag=True, help="Change the manifests instead of printing a patch.")
@click.option("--reason", default="", help="The reason of new entries.")
@root_option
def expectations(selection: Selection, root: Path, write: bool, reason: str) -> int:
    """Propose `expect` from the results, as a patch.

    The exit code is 1 if the patch is not empty.
    """
    loaded = open_project(root)
    # An expectation must not make an invalid entry green.
    valid = tuple(spec for spec in loaded.models if not spec.problems)
    manifest = loaded.model_copy(update={"models": valid})
    project_root = Path(manifest.project.root)
    selected = {planned.cell for planned in make_plan(manifest, selection).selected}
    current = read_results(manifest)
    print_result_notes(current)
    records = [record for record in current.results.run.records if record.cell in selected]
    names = dict.fromkeys(spec.manifest for spec in manifest.models)
    # Read bytes, because text mode would change the ends of lines.
    files = {name: (project_root / name).read_bytes().decode("utf-8") for name in names}
    lists = propose_lists(manifest, records, get_today(), reason.strip(), files.values())
    if not lists:
        print_line("the expectations match the results")
        return ExitCode.OK
    added = [entry for _, entries in lists.values() for entry in entries if entry.index is None]
    unexplained = [entry for entry in added if not entry.expectation.reason]
    if write and unexplained:
        count = pluralize(len(unexplained), "new expectation")
        print_error(f"not written: {count} without a reason; add --reason TEXT")
        return ExitCode.RED
    for name, before in files.items():
        file_lists = {id: value for id, value in lists.items() if value[0].manifest == name}
        after = replace_expectations(before, file_lists) if file_lists else before
        if not write:
            old, new = before.splitlines(), after.splitlines()
            for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""):
                print_line(line)
        elif after != before:
            write_text(project_root / name, after)
    if not write:
        return ExitCode.RED
    written = load_project(root, keep_invalid=True)
    if {spec.id for spec in written.models if not spec.problems} != {spec.id for spec in valid}:
        load_project(root)  # raise the problems of the written manifests
    models = pluralize(len(lists), "model")
    print_line(f"wrote the expectations of {models}; run `exporter export` to apply them")
    return ExitCode.OK
