"""The job of docs/ci.md that keeps the tables of main fresh by one pull request."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
#: Lists the open pull request if there is one, and stores each new one.
GH = """#!/bin/bash
if test "$2" = list; then cat "$PULLS" 2>/dev/null; exit 0; fi
printf '%s ' "$@" >> "$PULLS"
"""


def read_script() -> str:
    text = (ROOT / "docs/ci.md").read_text()
    (section,) = re.findall(r"## The tables of main\n.*?```yaml\n(.*?)```", text, re.DOTALL)
    job = yaml.safe_load(section)["jobs"]["tables"]
    assert job["if"] == "github.ref == 'refs/heads/main'"
    assert job["permissions"] == {"contents": "write", "pull-requests": "write"}
    return str(job["steps"][-1]["run"])


def git(root: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ("git", *settings, *arguments)
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clone of a repository with tables and a baseline."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin")
    git(tmp_path, "clone", "-q", "origin", "clone")
    root = tmp_path / "clone"
    git(root, "switch", "-qc", "main")
    (root / "reports/baseline").mkdir(parents=True)
    for name in ("COMPATIBILITY.md", "baseline/net.json"):
        (root / "reports" / name).write_text("old")
    git(root, "add", ".")
    git(root, "commit", "-qm", "tables")
    git(root, "push", "-q", "origin", "main")
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    return root


def run_step(root: Path) -> str:
    """Run the step on a fresh checkout of main; return the pull requests."""
    pulls = root.parent / "pulls"
    variables = {"PATH": f"{root.parent}:{os.environ['PATH']}", "PULLS": str(pulls)}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", read_script()]
    subprocess.run(command, cwd=root, env={**os.environ, **variables}, check=True)
    git(root, "checkout", "-qf", "main")
    return pulls.read_text() if pulls.exists() else ""


def test_stale_tables_are_one_pull_request_and_main_is_never_pushed(root: Path) -> None:
    assert run_step(root) == ""  # nothing is stale
    accepted = git(root, "rev-parse", "origin/main")
    for text in ("new", "newer"):
        (root / "reports/COMPATIBILITY.md").write_text(text)
        (root / "reports/added.md").write_text(text)
        (root / "reports/baseline/net.json").write_text(text)
        assert run_step(root).count("pr create --base main --head exporter-tables") == 1
        git(root, "fetch", "-q")
        assert git(root, "rev-parse", "origin/main") == accepted
        changed = git(root, "diff", "--name-only", "origin/main", "origin/exporter-tables")
        assert changed.split() == ["reports/COMPATIBILITY.md", "reports/added.md"]
        assert git(root, "show", "origin/exporter-tables:reports/added.md") == text
