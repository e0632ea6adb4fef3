"""Split off; to be described."""

from __future__ import annotations

from pathlib import Path

from exporter.cache.fingerprint import read_exporter_state
from exporter.gate import GROWTH_KINDS, GateFinding, compare_results
from exporter.manifest import Manifest, Project
from exporter.planning.plan import make_plan
from exporter.records.baseline import Baseline, read_baseline
from exporter.records.history import HISTORY_FILE, read_history
from exporter.records.record import RunRecord
from exporter.report import (
    preload_templates,
    render_exports,
    render_pages,
    write_reports,
)
from exporter.report.pages.template_folder import find_packaged_templates
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.audits import AUDITS, read_audits
from exporter.report.written_pages import (
    is_up_to_date,
    compute_key,
    list_written_pages,
    save_up_to_date_key,
)

#: In the build folder: what the pages were made from, and how they were written.
PAGES = "reports.json"


_BASELINE = "baseline.json"


def publish(manifest: Manifest, run: RunRecord) -> None:
    """Writes every file of the report, with the project's own templates where it has them.

    Nothing is written where those that stand were made from the very same.
    """
    reports, note = _reports(manifest.project), _note(manifest.project)
    past = _accepted(reports)
    key = _key(manifest, run, past)
    if is_up_to_date(note, key, reports):
        return
    files = _rendered(manifest, run, past)
    write_reports(reports, files)
    save_up_to_date_key(note, key, reports, files)


def prepare(project: Project) -> None:
    """Loads what pages are written with; what is wrong with it is told when they are."""
    preload_templates(Path(project.root) / project.templates, project.style, project.command)


def are_up_to_date(manifest: Manifest, run: RunRecord) -> bool:
    """Whether the pages that stand were written here from the very same; False: look closer."""
    reports = _reports(manifest.project)
    return is_up_to_date(_note(manifest.project), _key(manifest, run, _accepted(reports)), reports)


def _reports(project: Project) -> Path:
    return Path(project.root) / project.reports


def _note(project: Project) -> Path:
    return Path(project.root) / project.build / PAGES


def _key(manifest: Manifest, run: RunRecord, past: AcceptanceHistory) -> str:
    """Of everything that pages are made from."""
    project, reports = manifest.project, _reports(manifest.project)
    # Where the project lies stands on no page: a copy of it has the same ones.
    anywhere = Manifest(project=project.model_copy(update={"root": ""}), models=manifest.models)
    accepted = (past.baseline,) if past.baseline else ()
    values = (run, anywhere, past.history, *accepted)
    return compute_key(
        (*(value.model_dump_json() for value in values), read_exporter_state()),
        (Path(project.root) / project.templates, find_packaged_templates(), reports / AUDITS),
    )


def rendered(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    """Every file of the report by its name, as it would be written now."""
    return _rendered(manifest, run, _accepted(_reports(manifest.project)))


def _rendered(manifest: Manifest, run: RunRecord, past: AcceptanceHistory) -> dict[str, str]:
    project = manifest.project
    root = Path(project.root)
    pages = render_pages(
        manifest,
        run,
        _changes(manifest, run, past.baseline) if past.baseline else None,
        root / project.templates,
        read_audits(_reports(project)),
        past,
    )
    return pages | render_exports(manifest, run, past)


def made_from(project: Project) -> list[Path]:
    """Every file and folder, besides results and manifests, that `publish` reads or has written."""
    root = Path(project.root)
    reports, note = _reports(project), _note(project)
    folders = [root / project.templates, find_packaged_templates(), reports / AUDITS]
    accepted = [reports / _BASELINE, reports / HISTORY_FILE]
    return [*folders, *accepted, note, *(reports / name for name in list_written_pages(note))]


def _accepted(reports: Path) -> AcceptanceHistory:
    """What stands in git beside the pages."""
    path = reports / _BASELINE
    baseline = read_baseline(path) if path.exists() else None
    return AcceptanceHistory(baseline, read_history(reports / HISTORY_FILE))


def _changes(manifest: Manifest, run: RunRecord, baseline: Baseline) -> tuple[GateFinding, ...]:
    """What nobody has accepted. Figures are left out: other machines have others."""
    planned = frozenset(str(each.cell) for each in make_plan(manifest).cells)
    findings = compare_results(baseline, run, planned, manifest.project.gate)
    return tuple(each for each in findings if each.kind not in GROWTH_KINDS)
