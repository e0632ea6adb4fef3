"""`exporter report`: writes the reports from the results."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options import root_option
from exporter.cli.results import read_results
from exporter.cli.terminal import plural, say
from exporter.errors import ExitCode
from exporter.fingerprint import exporter_state
from exporter.history import HISTORY, read_history
from exporter.manifest import Manifest, load_project
from exporter.record import RunRecord
from exporter.report import render_outputs, render_reports, write_reports
from exporter.report.audits import AUDITS, read_audits
from exporter.report.standing import key_of, note_standing, packaged_templates, stands


@click.command()
@root_option
def command(root: Path) -> int:
    """Write the tables and the pages of the models."""
    manifest = load_project(root)
    results = read_results(manifest)
    publish(manifest, results.run)
    say(f"{plural(len(results.run.records), 'cell')}: {manifest.project.reports}/COMPATIBILITY.md")
    return ExitCode.OK


def publish(manifest: Manifest, run: RunRecord) -> None:
    """Writes every file of the report, with the project's own templates where it has them.

    Nothing is written where those that stand were made from the very same.
    """
    project = manifest.project
    root = Path(project.root)
    reports, templates = root / project.reports, root / project.templates
    note = root / project.build / "reports.json"
    history = read_history(reports / HISTORY)
    values = (run, manifest, history)
    key = key_of(
        (*(value.to_json(indent=None) for value in values), exporter_state()),
        (templates, packaged_templates(), reports / AUDITS),
    )
    if stands(note, key, reports):
        return
    files = rendered(manifest, run)
    write_reports(reports, files)
    note_standing(note, key, reports, files)


def rendered(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    """Every file of the report by its name, as it would be written now."""
    project = manifest.project
    root = Path(project.root)
    reports = root / project.reports
    pages = render_reports(
        manifest,
        run,
        templates=root / project.templates,
        audits=read_audits(reports),
        history=read_history(reports / HISTORY),
    )
    return pages | render_outputs(manifest, run)
