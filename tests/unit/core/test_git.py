"""The commits and versions that git returns."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.core.git import find_head, list_versions
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
