"""The commits and versions that git returns."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.api.report_pages import ReportPaths
from exporter.core.git import check_out, find_head, list_versions
from exporter.manifest import Project
from tests.integration.project import run_git


def test_versions_of_a_file_have_their_commits(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    run_git(tmp_path, "init", "-q")
    assert find_head(tmp_path, os.environ) is None
    for index in range(52):
        file.write_text(f"{index}\n")
        run_git(tmp_path, "add", ".")
        run_git(tmp_path, "commit", "-qm", "next")
    head, day = run_git(tmp_path, "log", "-1", "--format=%H %cs").split()
    versions = list_versions(file, os.environ, 100)
    assert [content for _, content in versions] == [f"{index}".encode() for index in range(52)]
    assert str(versions[-1][0]) == f"{head[:12]} of {day}" == str(find_head(tmp_path, os.environ))
    assert len(list_versions(file, os.environ, 3)) == 3
    assert list_versions(tmp_path.parent / "none.json", os.environ, 3) == []


def test_the_files_of_a_revision_are_written_without_the_pages(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    pages = ("reports/models/net.md", "reports/models/sub/net.md", "reports/badges/net.svg")
    needed = (" a", "reports/baseline.json", "models/net.md", "reports/models/net.py")
    project = tmp_path / "x.y"
    for name in (*pages, *needed):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("old")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-qm", "first")
    skipped = ReportPaths(Project(root=str(project), devices=())).pages
    with check_out(project, "HEAD", os.environ, skipped) as checkout:
        files = [path for path in checkout.root.rglob("*") if path.is_file()]
        names = {path.relative_to(checkout.root).as_posix() for path in files}
    assert names == set(needed)
