"""`exporter doctor`: examine the packages, the machine, the project and the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from exporter.cli.entry_point import BUILT_IN
from exporter.cli.options import json_option, root_option
from exporter.cli.output.tables import describe_ignored_files
from exporter.cli.output.terminal import print_document, print_line
from exporter.commands.doctor.doctor import (
    Diagnosis,
    Examination,
    Level,
    examine_build,
    examine_devices,
    examine_entry_points,
    examine_environments,
    examine_fork_server,
    examine_instruments,
    examine_machine,
    examine_packages,
    examine_project,
    examine_remote,
    examine_store,
)
from exporter.core.errors import ExitCode
from exporter.core.text import join_lines, pluralize
from exporter.export_options import get_default_jobs
from exporter.processes import make_worker_environment
from exporter.store.project_store import open_store

_COLORS = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "red"}


@click.command()
@root_option
@json_option(Examination)
def doctor(root: Path, *, as_json: bool) -> int:
    """Examine packages, machine, project and stored results.

    A `note` is a possible improvement. The exit code is 1 if there is a `problem`.
    """
    findings = []
    for finding in _examine(root):
        findings.append(finding)
        if not as_json:
            message = join_lines(finding.message)
            line = f"{finding.level:7}  {finding.subject:12}  {message}"
            print_line(line, color=_COLORS[finding.level])
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if as_json:
        print_document(Examination(findings=tuple(findings)))
    else:
        notes = sum(finding.level is Level.NOTE for finding in findings)
        print_line(f"{pluralize(problems, 'problem')}, {pluralize(notes, 'note')}")
    return ExitCode.RED if problems else ExitCode.OK


def _examine(root: Path) -> Iterator[Diagnosis]:
    """Yield the findings one by one, so the user sees each immediately."""
    environment = make_worker_environment(os.environ)
    can_start = True
    for finding in examine_packages(environment):
        can_start = can_start and finding.level is not Level.PROBLEM
        yield finding
    if can_start:
        yield examine_fork_server(environment)
        yield from examine_instruments(root, environment)
    yield from examine_entry_points(BUILT_IN)
    manifest, finding = examine_project(root)
    yield from examine_machine(root, get_default_jobs(), os.environ)
    yield finding
    if manifest is None:
        return
    for note in describe_ignored_files(manifest, os.environ):
        yield Diagnosis.note("weights", note)
    yield from examine_environments(manifest.project)
    yield from examine_devices(manifest, environment)
    yield from examine_build(manifest)
    store = open_store(manifest.project, os.environ)
    yield examine_store(store)
    yield from examine_remote(store)
