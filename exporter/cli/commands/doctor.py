"""`exporter doctor`: what is installed and whether it fits, the machine, the project, the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from exporter.cli.options.selection import get_today, root_option
from exporter.cli.options.store import open_store
from exporter.cli.output.terminal import print_line
from exporter.cli.workflows.export import default_jobs
from exporter.core.errors import ExitCode
from exporter.core.sanitize import join_lines
from exporter.core.text_format import pluralize
from exporter.processes import make_worker_environment
from exporter.tools.doctor import (
    Diagnosis,
    Examination,
    Level,
    examine_build,
    examine_devices,
    examine_fork_server,
    examine_machine,
    examine_packages,
    examine_project,
    examine_store,
)

_COLOURS = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "red"}


@click.command()
@root_option
@click.option("--json", "as_json", is_flag=True, help="Write the findings as JSON.")
def command(root: Path, *, as_json: bool) -> int:
    """Say what is installed, what works here, what is stale.

    A `note` works and could be better; the exit code is 1 where there is a `problem`.
    """
    findings = []
    for finding in _examine(root):
        findings.append(finding)
        if not as_json:
            _show(finding)
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if as_json:
        print_line(Examination(findings=tuple(findings)).to_json().rstrip())
    else:
        notes = sum(finding.level is Level.NOTE for finding in findings)
        print_line(f"{pluralize(problems, 'problem')}, {pluralize(notes, 'note')}")
    return ExitCode.RED if problems else ExitCode.OK


def _examine(root: Path) -> Iterator[Diagnosis]:
    """One after the other, so that each is shown when it is known."""
    environment = make_worker_environment(os.environ)
    can_start = True
    for finding in examine_packages(environment):
        can_start = can_start and finding.level is not Level.PROBLEM
        yield finding
    if can_start:
        yield examine_fork_server(environment)
    manifest, finding = examine_project(root)
    jobs = (manifest.project.jobs if manifest else None) or default_jobs()
    yield from examine_machine(root, jobs, os.environ)
    yield finding
    if manifest is None:
        return
    yield from examine_devices(manifest, environment)
    yield from examine_build(manifest, get_today())
    yield examine_store(open_store(manifest.project))


def _show(finding: Diagnosis) -> None:
    level = f"{finding.level:7}"
    print_line(
        f"{level}  {finding.subject:12}  {join_lines(finding.message)}",
        color=_COLOURS[finding.level],
    )
