"""`exporter check`: validate manifests and committed tables, for a pre-commit hook."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.usecases.current_results import find_inconsistencies


@click.command()
@root_option
def check(root: Path) -> int:
    """Check manifests, baseline and tables without an export.

    The baseline and the tables must match the manifests. torch is not needed. The tables are
    compared only if this machine wrote them.
    """
    manifest = load_project(root)
    problems = tuple(find_inconsistencies(manifest))
    for problem in problems:
        print_error(problem)
    cells = pluralize(len(make_plan(manifest).cells), "cell")
    models = pluralize(len(manifest.models), "model")
    print_line(f"{models}, {cells}: {pluralize(len(problems), 'problem')}")
    return ExitCode.RED if problems else ExitCode.OK
