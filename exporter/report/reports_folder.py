"""The reports folder of a project: its files, whether they are up to date, and who wrote them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.cache.states import hash_source, read_exporter_state
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import (
    CELL_LIMIT,
    PROJECT_LIMIT,
    open_regular_file,
    read_regular_file,
    remove_unfinished_files,
    write_bytes,
)
from exporter.core.frozen_model import FrozenModel
from exporter.core.git import list_versions
from exporter.core.text import pluralize
from exporter.gate.evidence import attach_evidence, find_evidence_path
from exporter.jobs import write_json
from exporter.manifest import Manifest, Project, find_renames
from exporter.planning.plan import list_all_cells
from exporter.records.baseline import FOLDER, Baseline, read_baseline, rename_models
from exporter.records.record import RunRecord
from exporter.report.pages.badge import BADGE, draw_badge
from exporter.report.pages.index_page import INDEX
from exporter.report.pages.markdown import MARK, OVERVIEW, render_pages
from exporter.report.pages.model_page import PAGES
from exporter.report.pages.templates import find_packaged_templates
from exporter.report.plugin_files import (
    PLUGINS,
    describe_plugins,
    list_plugin_folders,
    render_plugin_files,
)
from exporter.report.results_digest import find_digests, hash_cells, hash_results
from exporter.report.rows.cells import AcceptanceHistory, collect_cells
from exporter.report.site import SITE_FILES, render_site_files

#: In the build folder: the key of the inputs and the digests of the written files.
PAGES_NOTE = "reports.json"
#: The beginning of the warning about a baseline that cannot be read.
UNREADABLE_BASELINE = "warning: the tables compare with no baseline"


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
        return Path(self.project.root) / self.project.build / PAGES_NOTE

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that the pages depend on; they need not exist."""
        return Path(self.project.root) / self.project.templates, find_packaged_templates()


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
        conflict. The pages then compare with nothing. And a warning about files of version 1.0.
    """
    paths = ReportPaths(manifest.project)
    run = attach_evidence(run, manifest)
    baseline, warnings = None, list[str]()
    try:
        baseline = _read_baseline(manifest)
    except ExporterError as error:
        warnings = [f"{UNREADABLE_BASELINE}: {each}" for each in error.problems]
    history = AcceptanceHistory(baseline, trend, commit)
    key = _compute_key(manifest, run, history)
    if not PagesNote.load(paths.note).is_for(key, paths.reports):
        files = {
            name: content.encode() if isinstance(content, str) else content
            for name, content in render_reports(manifest, run, history).items()
        }
        write_files(paths.reports, files)
        warnings += _remove_old_files(paths)
        pages = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
        write_json(paths.note, PagesNote(key=key, pages=pages))
    return warnings


def read_site_files(
    manifest: Manifest, run: RunRecord, trend: Sequence[Any] = (), commit: str = ""
) -> dict[str, str | bytes]:
    """Return the files of the report, and those that only a site has."""
    run = attach_evidence(run, manifest)
    baseline = _read_baseline(manifest)
    history = AcceptanceHistory(baseline, trend, commit)
    site = render_site_files(manifest, run, history)
    return {**render_reports(manifest, run, history), **site}


def find_stale_pages(manifest: Manifest, run: RunRecord) -> tuple[str, ...]:
    """Return the names of the files that differ from the ones that would be written now."""
    paths = ReportPaths(manifest.project)
    run = attach_evidence(run, manifest)
    history = AcceptanceHistory(_read_baseline(manifest))
    if PagesNote.load(paths.note).is_for(_compute_key(manifest, run, history), paths.reports):
        return ()
    files = sorted(render_reports(manifest, run, history).items())
    return tuple(name for name, content in files if not _has_content(paths.reports / name, content))


def are_pages_unmodified(project: Project) -> bool:
    """Return True if this machine wrote the files and no other program changed them."""
    paths = ReportPaths(project)
    return PagesNote.load(paths.note).is_for(None, paths.reports)


def list_page_inputs(project: Project) -> list[Path]:
    """Return the paths that `write_reports` reads, except results and manifests."""
    paths = ReportPaths(project)
    evidence = find_evidence_path(project)
    return [*paths.folders, *list_plugin_folders(), paths.baseline, evidence]


def list_pages(project: Project) -> list[Path]:
    """Return the files that `write_reports` wrote."""
    paths = ReportPaths(project)
    return [paths.note, *(paths.reports / name for name in PagesNote.load(paths.note).pages)]


def _compute_key(manifest: Manifest, run: RunRecord, history: AcceptanceHistory) -> str:
    # The pages do not contain the project's root, so a copy of the project has the same key.
    project = manifest.project.model_copy(update={"root": ""})
    accepted = (history.baseline,) if history.baseline else ()
    values = (run, manifest.model_copy(update={"project": project}), *accepted)
    texts = (
        *(value.model_dump_json() for value in values),
        read_exporter_state(),
        describe_plugins(),
        history.commit,
        *(str(point.commit) for point in history.trend),
        *find_old_files(ReportPaths(manifest.project).reports),
    )
    folders = (*ReportPaths(manifest.project).folders, *list_plugin_folders())
    return compute_key(texts, folders)


def render_reports(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory | None = None
) -> dict[str, str | bytes]:
    """Return all files of the report by their names in its folder.

    Raises:
        ExporterError: MANIFEST, if a template is invalid. ENVIRONMENT, if the package of a file
            cannot be loaded or returns an invalid name.
    """
    history = history or AcceptanceHistory()
    templates = Path(manifest.project.root) / manifest.project.templates
    cells = [cell for each in collect_cells(manifest, run).values() for cell in each]
    old = find_old_files(ReportPaths(manifest.project).reports)
    site = render_site_files(manifest, run, history) if old else {}
    return {
        **render_pages(manifest, run, templates, history),
        BADGE: draw_badge(cells),
        **{name: site[name] for name in old},
        **render_plugin_files(manifest, run),
    }


def _read_baseline(manifest: Manifest) -> Baseline | None:
    path = ReportPaths(manifest.project).baseline
    if not path.exists():
        return None
    baseline = read_baseline(path)
    return rename_models(baseline, find_renames(manifest, baseline.models.keys()))


#: Merges keep both sides of these files without a conflict, because the next report replaces them,
#: and a pull request on GitHub folds them.
#: The baseline is not among them, because a person decides about its conflicts.
_ATTRIBUTES = ".gitattributes"
_ATTRIBUTES_MARK = "# Written by `exporter report`: it replaces these files after a merge.\n"
_MERGED = (OVERVIEW, BADGE, f"{PAGES}/**")


#: The first bytes of each file of a report contain one of these; files of plugins do not.
_SIGNS = (
    b"Written by `exporter report`",
    b'{\n  "schemaVersion": 1,\n  "label": ',
    b'<testsuites name="exporter"',
    b"model,opset,device,status,stage,",
    b":root { color-scheme: light dark; --text: #1f2328;",  # a page of `--site`
)
_SIGN_RANGE = 1 << 12


def require_own_files(folder: Path, names: Iterable[str]) -> None:
    """Raise an error if the report would replace a file that no report wrote.

    Raises:
        ExporterError: ENVIRONMENT, with a problem for each such file.
    """
    problems = []
    for name in sorted(names):
        path = folder / name
        if path.is_symlink() or not path.is_file() or not path.stat().st_size:
            continue
        if not name.startswith(f"{PLUGINS}/") and not _is_of_report(folder, name):
            fix = "move it away, or name another folder"
            problems.append(Problem(message=f"{path}: was not written by `exporter report`; {fix}"))
    if problems:
        raise ExporterError(ExitCode.ENVIRONMENT, problems)


def _is_of_report(folder: Path, name: str) -> bool:
    if name == INDEX:  # a template of the project may omit the sign
        names = (INDEX, OVERVIEW, OVERVIEW.replace(".md", ".html"))
        return (folder / name).is_file() and any(_has_sign(folder / each) for each in names)
    return _has_sign(folder / name)


def _has_sign(path: Path) -> bool:
    try:
        with open_regular_file(path) as file:
            head = file.read(_SIGN_RANGE)
    except OSError:
        return False
    return any(sign in head for sign in _SIGNS)


def find_old_files(reports: Path) -> tuple[str, ...]:
    """Return the files of version 1.0 that exist; each report updates those that you keep."""
    return tuple(name for name in SITE_FILES if _is_of_report(reports, name))


def _remove_old_files(paths: ReportPaths) -> list[str]:
    """Remove the files that no report writes any more, and return a warning about each kind."""
    folder, warnings = paths.project.reports, []
    if names := find_old_files(paths.reports):
        warnings.append(
            f"warning: {folder}: {', '.join(names)}: written because they exist, and version 1.2 "
            "does not write them here; remove them, and use `exporter report --site FOLDER`"
        )
    badges = paths.reports / "badges"
    inside = [] if badges.is_symlink() else [*badges.glob("*.svg"), *badges.glob("*.json")]
    files = (paths.reports / "results.csv", paths.reports / "badge.json", *inside)
    if removed := [path for path in files if _has_sign(path)]:
        for path in removed:
            _delete(path)
        with suppress(OSError):  # files of the user stay
            badges.rmdir()
        warnings.append(
            f"warning: {folder}: removed {pluralize(len(removed), 'file')} that no report writes "
            f"any more (badges of models, badge.json, results.csv): use {BADGE} for the badge, and "
            f"{paths.project.build}/results.json for the values"
        )
    return warnings


#: In the folder of a plugin: the names of the files that the last report wrote there.
_WRITTEN = ".written"


def _list_written(plugin: Path) -> frozenset[str]:
    try:
        return frozenset(read_regular_file(plugin / _WRITTEN, CELL_LIMIT).decode().splitlines())
    except (OSError, ValueError):
        return frozenset()


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write every file, and delete the files of removed models and plugins.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be written or deleted, if a folder inside
            the reports folder is a link, or if a file was not written by a report.
    """
    plugins = sorted(path for path in (folder / PLUGINS).glob("*") if path.is_dir())
    folders = (folder, folder / PAGES, folder / PLUGINS, *plugins)
    for path in folders[1:]:
        if path.is_symlink():
            message = f"{path}: is a symlink; replace it by a folder, or remove it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    require_own_files(folder, files)
    for name, content in sorted(files.items()):
        if not _has_content(folder / name, content):
            data = content.encode() if isinstance(content, str) else content
            write_bytes(folder / name, data)
    _write_attributes(folder / _ATTRIBUTES, [name for name in SITE_FILES if name in files])
    for path in folders:
        remove_unfinished_files(path)
    for path in sorted((folder / PAGES).glob("*.md")):
        if f"{PAGES}/{path.name}" not in files and _starts_with(path, MARK.encode()):
            _delete(path)
    _clean_plugin_folders(folder, plugins, files)


def _clean_plugin_folders(folder: Path, existing: Iterable[Path], files: Iterable[str]) -> None:
    """Delete the files that an earlier report wrote for a plugin, and list the present ones."""
    written = [folder / name for name in files if name.startswith(f"{PLUGINS}/")]
    for plugin in sorted({*existing, *(path.parent for path in written)}):
        names = sorted(path.name for path in written if path.parent == plugin)
        for path in (plugin / name for name in sorted(_list_written(plugin))):
            if path.name not in names and path.parent == plugin and path.is_file():
                _delete(path)
        content = "".join(f"{name}\n" for name in names).encode()
        if names and not _has_content(plugin / _WRITTEN, content):
            write_bytes(plugin / _WRITTEN, content)
        elif not names and (plugin / _WRITTEN).is_file():
            _delete(plugin / _WRITTEN)


def _write_attributes(path: Path, old: Iterable[str]) -> None:
    """Write the attributes for git, unless the project has a file of its own."""
    content = _ATTRIBUTES_MARK + "".join(
        f"{name} merge=union linguist-generated\n" for name in (*_MERGED, *old)
    )
    is_ours = not os.path.lexists(path) or _starts_with(path, _ATTRIBUTES_MARK.encode())
    if is_ours and not _has_content(path, content.encode()):
        write_bytes(path, content.encode())


def _has_content(path: Path, content: str | bytes) -> bool:
    data = content.encode() if isinstance(content, str) else content
    try:
        return read_regular_file(path, len(data)) == data  # a symlink is no page
    except OSError:
        return False


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with open_regular_file(path) as file:
            return file.read(len(mark)) == mark
    except OSError:
        return False


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        message = f"{path}: cannot be deleted: {error.strerror}; check its permissions"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def find_merge_error(manifest: Manifest) -> str:
    """Return why files of another machine contradict each other, as after a merge of git, or ""."""
    path = ReportPaths(manifest.project).reports / OVERVIEW
    try:
        digests = find_digests(read_regular_file(path, PROJECT_LIMIT).decode())
    except (OSError, ValueError):
        return ""  # there is none, or another program replaced it
    if len(digests) > 1:
        return f"{OVERVIEW} has {len(digests)} lines of digests, as after a merge"
    is_same = all(cells == hash_cells(list_all_cells(manifest)) for _, cells in digests)
    return "" if is_same else f"{OVERVIEW} has other cells than the manifests"


def describe_uncommitted(manifest: Manifest, run: RunRecord, environment: Mapping[str, str]) -> str:
    """Return why the committed tables are old, or "". Messages differ between machines.

    Results of a machine without some files of weights are not those to commit.
    """
    if manifest.missing_files or any(spec.lacks_weights for spec in manifest.models):
        return ""
    reports = ReportPaths(manifest.project).reports
    cells = [cell for each in collect_cells(manifest, run).values() for cell in each]
    for _, files in list_versions(reports, (OVERVIEW,), environment, 1):
        digests = find_digests(files[OVERVIEW].decode(errors="replace"))
        if [results for results, _ in digests] != [hash_results(cells)]:
            return f"{manifest.project.reports}/{OVERVIEW} of the last commit has other results"
    return ""
