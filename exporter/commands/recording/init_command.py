"""`exporter init`: write the files of a new project."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cli.output.tables import print_ignored_files
from exporter.cli.output.terminal import is_terminal, print_error, print_line, print_table
from exporter.commands.recording.file_changes import apply_changes
from exporter.commands.recording.new_project import list_actions, prepare_project
from exporter.core.errors import ExitCode

_NEXT = "next: `exporter export`, then accept the results with `exporter baseline`"


@click.command()
@click.option("--ci", type=click.Choice(("github", "gitlab")), help="Also write a workflow.")
@click.option("--pre-commit", is_flag=True, help="Also add a hook of pre-commit.")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--yes", is_flag=True, help="Write without a question.")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
def init(root: Path, ci: str | None, *, pre_commit: bool, dry_run: bool, yes: bool) -> int:
    """Write an example, settings and .gitignore.

    Existing files keep their content; comments and order of pyproject.toml, too. A second call
    changes nothing.
    """
    root = root.absolute()
    project = prepare_project(root, ci=ci or "", pre_commit=pre_commit)
    print_table(list_actions(root, project))
    for note in project.notes:
        print_error(note)
    if dry_run:
        return ExitCode.OK
    changes = [change for change in project.changes if change.action != "unchanged"]
    if changes and not yes and is_terminal():
        click.confirm("write these files?", default=True, abort=True)
    apply_changes(changes)
    if ci:
        print_ignored_files(root, os.environ)
    print_line(_NEXT, wraps=True)
    if any(change.path.name == "example.toml" for change in changes):
        print_line("from your own script: `exporter record -- python export.py`")
    return ExitCode.OK
