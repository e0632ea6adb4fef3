"""Render and write the files of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.cache.states import hash_source, read_exporter_state
from exporter.core import import_plugin
from exporter.core.errors import ExporterError
from exporter.manifest import Manifest, Project
from exporter.records.baseline import FOLDER, Baseline, read_baseline
from exporter.records.record import RunRecord
from exporter.report.pages.page_files import render_pages
from exporter.report.pages.templates import (
    are_unmodified,
    compute_key,
    find_packaged_templates,
    is_up_to_date,
    list_written_pages,
    save_up_to_date_key,
)
from exporter.report.rows.cells import AcceptanceHistory

#: In the build folder: the key of the inputs and the digests of the written files.
PAGES_NOTE = "reports.json"


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The paths that belong to the report of a project."""

    project: Project

    @property
    def reports(self) -> Path:
        return Path(self.project.root) / self.project.reports

    @property
    def baseline(self) -> Path:
        return self.reports / FOLDER

    @property
    def note(self) -> Path:
        """The note of the files that were written last."""
        return Path(self.project.root) / self.project.build / PAGES_NOTE

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that the pages depend on; they need not exist."""
        templates = Path(self.project.root) / self.project.templates
        return (
            templates,
            find_packaged_templates(),
        )


def write_reports(
    manifest: Manifest, run: RunRecord, trend: Sequence[Any] = (), commit: str = ""
) -> list[str]:
    """Write all files of the report, unless they are up to date.

    `trend`, `commit`: The accepted states of earlier commits and the commit of the results, for
    pages that no commit contains.

    Returns:
        A warning for each file of the baseline that cannot be read, such as one with a merge
        conflict. The pages then compare with nothing.
    """
    paths = ReportPaths(manifest.project)
    run = import_plugin("evidence").attach_evidence(run, manifest.project)
    baseline, warnings = None, list[str]()
    try:
        baseline = _read_baseline(paths)
    except ExporterError as error:
        warnings = [
            f"warning: the tables compare with no baseline: {each}" for each in error.problems
        ]
    history = AcceptanceHistory(baseline, trend, commit)
    key = _compute_key(manifest, run, history)
    if not is_up_to_date(paths.note, key, paths.reports):
        files = {
            name: content.encode() if isinstance(content, str) else content
            for name, content in _render(manifest, run, history).items()
        }
        import_plugin("reports").write_reports(paths.reports, files)
        save_up_to_date_key(paths.note, key, files)
    return warnings


def render_reports(manifest: Manifest, run: RunRecord, commit: str = "") -> dict[str, str | bytes]:
    """Return all files of the report by their names in its folder."""
    run = import_plugin("evidence").attach_evidence(run, manifest.project)
    baseline = _read_baseline(ReportPaths(manifest.project))
    return _render(manifest, run, AcceptanceHistory(baseline, commit=commit))


def find_stale_pages(manifest: Manifest, run: RunRecord) -> tuple[str, ...]:
    """Return the names of the files that differ from the ones that would be written now."""
    paths = ReportPaths(manifest.project)
    run = import_plugin("evidence").attach_evidence(run, manifest.project)
    history = AcceptanceHistory(_read_baseline(paths))
    if is_up_to_date(paths.note, _compute_key(manifest, run, history), paths.reports):
        return ()
    files = sorted(_render(manifest, run, history).items())
    return tuple(name for name, content in files if not _has_content(paths.reports / name, content))


def are_pages_unmodified(project: Project) -> bool:
    """Return True if this machine wrote the files and no other program changed them."""
    paths = ReportPaths(project)
    return are_unmodified(paths.note, paths.reports)


def list_page_inputs(project: Project) -> list[Path]:
    """Return the paths that `write_reports` reads or wrote, except results and manifests."""
    paths = ReportPaths(project)
    written = (paths.reports / name for name in list_written_pages(paths.note))
    sources = (*paths.folders, *import_plugin("reports").list_plugin_folders())
    evidence = import_plugin("evidence").find_evidence_path(project)
    return [*sources, paths.baseline, evidence, paths.note, *written]


def _has_content(path: Path, content: str | bytes) -> bool:
    data = content.encode() if isinstance(content, str) else content
    return bool(hash_source(path)) and path.read_bytes() == data


def _compute_key(manifest: Manifest, run: RunRecord, history: AcceptanceHistory) -> str:
    # The pages do not contain the project's root, so a copy of the project has the same key.
    project = manifest.project.model_copy(update={"root": ""})
    accepted = (history.baseline,) if history.baseline else ()
    values = (run, manifest.model_copy(update={"project": project}), *accepted)
    outputs = import_plugin("reports")
    texts = (
        *(value.model_dump_json() for value in values),
        read_exporter_state(),
        outputs.describe_plugins(),
        history.commit,
        *(str(point.commit) for point in history.trend),
    )
    folders = (*ReportPaths(manifest.project).folders, *outputs.list_plugin_folders())
    return compute_key(texts, folders)


def _render(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory
) -> dict[str, str | bytes]:
    templates = Path(manifest.project.root) / manifest.project.templates
    pages = render_pages(manifest, run, templates, history)
    return {**pages, **import_plugin("reports").render_exports(manifest, run, history)}


def _read_baseline(paths: ReportPaths) -> Baseline | None:
    return read_baseline(paths.baseline) if paths.baseline.exists() else None
