"""Render and write the files of the report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from exporter.cache.states import hash_source, read_exporter_state
from exporter.core.errors import ExporterError
from exporter.core.files import PROJECT_LIMIT
from exporter.core.frozen_model import FrozenModel
from exporter.gate.evidence import attach_evidence, find_evidence_path
from exporter.jobs import write_json
from exporter.manifest import Manifest, Project
from exporter.records.baseline import Baseline, read_baseline
from exporter.records.record import RunRecord
from exporter.report import report_files
from exporter.report.pages.page_files import render_pages
from exporter.report.report_files import list_plugin_folders, render_exports
from exporter.report.report_paths import ReportPaths
from exporter.report.rows.cells import AcceptanceHistory


class PagesNote(FrozenModel):
    """The key of the pages that were written last; empty if there are none."""

    key: str
    pages: dict[str, str]
    """Digest by name, relative to the reports folder."""

    @classmethod
    def load(cls, path: Path) -> PagesNote:
        return cls.find(path, PROJECT_LIMIT) or cls(key="", pages={})

    def is_for(self, key: str | None, reports: Path) -> bool:
        """Return whether the pages are unmodified and have this key; None: any key."""
        is_known = bool(self.key) and key in (None, self.key)
        return is_known and all(hash_source(reports / n) == each for n, each in self.pages.items())


def compute_key(texts: Iterable[str], folders: Iterable[Path]) -> str:
    """Return a digest of the texts and of all files in the folders, which need not exist."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    for folder in folders:
        paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        for path in paths:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(folder)}:{hash_source(path)};".encode())
    return digest.hexdigest()


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
    run = attach_evidence(run, manifest.project)
    baseline, warnings = None, list[str]()
    try:
        baseline = _read_baseline(paths)
    except ExporterError as error:
        warnings = [
            f"warning: the tables compare with no baseline: {each}" for each in error.problems
        ]
    history = AcceptanceHistory(baseline, trend, commit)
    key = _compute_key(manifest, run, history)
    if not PagesNote.load(paths.note).is_for(key, paths.reports):
        files = {
            name: content.encode() if isinstance(content, str) else content
            for name, content in _render(manifest, run, history).items()
        }
        report_files.write_reports(paths.reports, files)
        pages = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
        write_json(paths.note, PagesNote(key=key, pages=pages))
    return warnings


def render_reports(manifest: Manifest, run: RunRecord, commit: str = "") -> dict[str, str | bytes]:
    """Return all files of the report by their names in its folder."""
    run = attach_evidence(run, manifest.project)
    baseline = _read_baseline(ReportPaths(manifest.project))
    return _render(manifest, run, AcceptanceHistory(baseline, commit=commit))


def find_stale_pages(manifest: Manifest, run: RunRecord) -> tuple[str, ...]:
    """Return the names of the files that differ from the ones that would be written now."""
    paths = ReportPaths(manifest.project)
    run = attach_evidence(run, manifest.project)
    history = AcceptanceHistory(_read_baseline(paths))
    if PagesNote.load(paths.note).is_for(_compute_key(manifest, run, history), paths.reports):
        return ()
    files = sorted(_render(manifest, run, history).items())
    return tuple(name for name, content in files if not _has_content(paths.reports / name, content))


def are_pages_unmodified(project: Project) -> bool:
    """Return True if this machine wrote the files and no other program changed them."""
    paths = ReportPaths(project)
    return PagesNote.load(paths.note).is_for(None, paths.reports)


def list_page_inputs(project: Project) -> list[Path]:
    """Return the paths that `write_reports` reads or wrote, except results and manifests."""
    paths = ReportPaths(project)
    written = (paths.reports / name for name in PagesNote.load(paths.note).pages)
    sources = (*paths.folders, *list_plugin_folders())
    evidence = find_evidence_path(project)
    return [*sources, paths.baseline, evidence, paths.note, *written]


def _has_content(path: Path, content: str | bytes) -> bool:
    data = content.encode() if isinstance(content, str) else content
    return hash_source(path) == hashlib.sha256(data).hexdigest()


def _compute_key(manifest: Manifest, run: RunRecord, history: AcceptanceHistory) -> str:
    # The pages do not contain the project's root, so a copy of the project has the same key.
    project = manifest.project.model_copy(update={"root": ""})
    accepted = (history.baseline,) if history.baseline else ()
    values = (run, manifest.model_copy(update={"project": project}), *accepted)
    outputs = report_files
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
    return {**pages, **render_exports(manifest, run, history)}


def _read_baseline(paths: ReportPaths) -> Baseline | None:
    return read_baseline(paths.baseline) if paths.baseline.exists() else None
