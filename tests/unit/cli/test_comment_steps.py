"""The steps of action.yml that write the comment of a pull request, also of several projects."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
STEPS = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
(PART,) = (each["run"] for each in STEPS if "comment.part" in each.get("run", ""))
(COMMENT,) = (each["run"] for each in STEPS if "gh api" in each.get("run", ""))
MARKER = "<!-- exporter gate -->\n"
#: Lists the comments of the pull request, or fails as GitHub does for one that is too long.
GH = """#!/bin/bash
if test "$2" = --paginate; then exit 0; fi
test "$(wc -m < build/comment.md)" -le 65536
"""


def run_step(script: str, root: Path, folder: str = ".") -> str:
    """Run a step in the project's folder, and return the comment."""
    (root / "gh").write_text(GH)
    (root / "gh").chmod(0o755)
    variables = {"PATH": f"{root}:{os.environ['PATH']}", "FOLDER": folder, "COMMIT": "1a2b3c"}
    variables |= {"GITHUB_REPOSITORY": "a/b", "NUMBER": "7", "JOB": "https://example.com/job"}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    subprocess.run(command, cwd=root, env={**os.environ, **variables}, check=True)
    return (root / "build/comment.md").read_text()


def write_comment(root: Path, text: str) -> None:
    path = root / "build/comment.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{MARKER}{text}\n")


@pytest.mark.parametrize("size", [0, 9_000])
def test_several_projects_have_one_comment_with_a_part_each(tmp_path: Path, size: int) -> None:
    parts = tmp_path / "build/parts"
    for index, name in enumerate(("packages/vision", "packages/text")):
        (project := tmp_path / name).mkdir(parents=True)
        if not index:  # the job of the other one wrote no verdict
            write_comment(project, "### ✅ May merge\n" + "- détail\n" * size)
        text = run_step(PART, project, name)
        (parts / f"exporter-{index}-results").mkdir(parents=True)
        (parts / f"exporter-{index}-results/comment.md").write_text(text)
    comment = run_step(COMMENT, tmp_path)
    assert comment.startswith(f"{MARKER}## packages/vision\n\n### ✅ May merge\n")
    assert "\n## packages/text\n\n# Gate\n\nNo verdict: the job" in comment
    assert comment.count(MARKER) == 1
    assert ("The rest is in the job." in comment) == bool(size)
    assert "commit 1a2b3c: see [the job](https://example.com/job)" in comment


def test_one_project_has_the_page_of_the_gate(tmp_path: Path) -> None:
    assert f"{MARKER}# Gate\n\nNo verdict" in run_step(COMMENT, tmp_path)
    write_comment(tmp_path, "### ✅ May merge")
    assert run_step(COMMENT, tmp_path).startswith(f"{MARKER}### ✅ May merge\n")
    # In a folder, the job with all steps writes a comment of its own.
    write_comment(tmp_path, "### ✅ May merge")
    run_step(PART, tmp_path, "packages/text")
    comment = run_step(COMMENT, tmp_path, "packages/text")
    first, heading = "<!-- exporter gate of packages/text -->", "## packages/text"
    assert comment.startswith(f"{first}\n{heading}\n\n### ✅ May merge\n")
