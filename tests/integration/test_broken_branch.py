"""One broken branch, seen on every surface that a reviewer looks at.

Each has to say what broke, where it is promised and where in the model, since when, and how to see
it again, in the words that this project uses for its commands.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.integration.project import run_exporter
from tests.integration.test_gate_revision import run_git

SETTINGS = '[tool.exporter]\ncommand = "uv run exporter {}"\n'
MODELS = """
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x).relu()


class Baked(Scorer):
    pass
"""
BROKEN = """    def forward(self, x):
        return self.linear(x * float(x.detach().abs().max()))
"""
ENDS = """inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
"""
MANIFEST = f"""format = 1

[models.scorer]
source = "nets.py:Scorer"
opsets = [17]
{ENDS}
[models.baked]
source = "nets.py:Baked"
opsets = [17]
{ENDS}
[models.stuck]
source = "nets.py:Scorer"
opsets = [13]
{ENDS}"""


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A branch that breaks two models and the opset of a third; exported, not accepted."""
    root = tmp_path_factory.mktemp("walk") / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "pyproject.toml").write_text(SETTINGS)
    (root / ".gitignore").write_text("build/\n__pycache__/\n")
    models, manifest = root / "manifests/nets.py", root / "manifests/nets.toml"
    models.write_text(MODELS)
    manifest.write_text(MANIFEST)
    made = run_exporter(root, "export")
    assert made.returncode == 0, made.stdout + made.stderr
    assert run_exporter(root, "baseline").returncode == 0
    run_git(root, "init", "-q", "-b", "main")
    run_git(root, "add", ":/")
    run_git(root, "commit", "-qm", "accepted", "--date", "2026-03-01T12:00:00Z")
    run_git(root, "checkout", "-qb", "topic")
    broken = MODELS.replace("self.linear(x).relu()", "self.linear(x[:3]).relu()")
    models.write_text(broken.replace("    pass\n", BROKEN))
    stuck = 'source = "nets.py:Scorer"\nopsets = [13]\n'
    manifest.write_text(MANIFEST.replace(stuck, f'{stuck}exporter = "dynamo"\n'))
    run_git(root, "commit", "-qam", "broken")
    assert run_exporter(root, "export").returncode == 1
    return root


@pytest.fixture(scope="module")
def gate(branch: Path) -> subprocess.CompletedProcess[str]:
    """The gate, as a GitHub job runs it."""
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(branch)}
    environment["GITHUB_STEP_SUMMARY"] = str(branch / "build/summary.md")
    return run_exporter(branch, "gate", "--against", "main", **environment)


def last_green(root: Path) -> str:
    """The commit and the day that a reader is to be told."""
    day = run_git(root, "show", "--no-patch", "--format=%cs", "main")
    return f"{run_git(root, 'rev-parse', 'main')[:12]} of {day}"


#: Cell, where it is promised, what broke, where in the model.
BROKE = [
    ("scorer/17/cpu", "manifests/nets.toml:3", "PyTorch gives [3, 3]", ""),
    ("baked/17/cpu", "manifests/nets.toml:9", "times the bound", "manifests/nets.py:16"),
    ("stuck/13/cpu", "manifests/nets.toml:15", "the file has opset 18, expected 13", ""),
]


@pytest.mark.parametrize(("cell", "place", "what", "line"), BROKE)
def test_the_terminal(
    branch: Path,
    gate: subprocess.CompletedProcess[str],
    cell: str,
    place: str,
    what: str,
    line: str,
) -> None:
    assert gate.returncode == 1
    said = [text for text in gate.stdout.splitlines() if not text.startswith("::")]
    at = said.index(next(text for text in said if text.startswith(f"{cell}: newly red: pass -> ")))
    block = "\n".join(said[at : at + 5])
    for part in (what, place, line, f"last green in {last_green(branch)}"):
        assert part in block
    assert f"uv run exporter repro {cell}" in block


def test_the_terminal_of_an_export(branch: Path) -> None:
    again = run_exporter(branch, "export")
    assert "promised at manifests/nets.toml:9" in again.stdout
    assert "(manifests/nets.py:16)" in again.stdout
    assert "uv run exporter repro baked/17/cpu" in again.stdout


def test_annotations(branch: Path, gate: subprocess.CompletedProcess[str]) -> None:
    for cell, place, what, line in BROKE:
        file, _, number = place.partition(":")
        title = f"title={cell}%3A newly red,file={file},line={number}::"
        (found,) = [text for text in gate.stdout.splitlines() if title in text]
        for part in (what, line, last_green(branch), f"uv run exporter repro {cell}"):
            assert part in found


@pytest.mark.parametrize("page", ["gate.md", "comment.md", "summary.md"])
def test_the_comment_and_the_summary(
    branch: Path, gate: subprocess.CompletedProcess[str], page: str
) -> None:
    text = (branch / "build" / page).read_text()
    for cell, place, what, line in BROKE:
        section = text.partition(f"### {cell}: newly red")[2].partition("###")[0]
        for part in (f"`{place}`", line, f"last green in {last_green(branch)}"):
            assert part in section
        assert f"`uv run exporter repro {cell}`" in section
        assert what.replace("[", "&#91;").replace("]", "&#93;") in text
    assert "`uv run exporter baseline`" in text
    assert "nox" not in text


def test_the_pages_of_the_models_and_the_table(branch: Path) -> None:
    table = (branch / "reports/COMPATIBILITY.md").read_text()
    for cell, place, what, line in BROKE:
        shown = what.replace("[", "&#91;").replace("]", "&#93;")
        page = (branch / f"reports/models/{cell.partition('/')[0]}.md").read_text()
        for part in (shown, f"`{place}`", line, f"`uv run exporter repro {cell}`"):
            assert part in page
        assert re.search(r"accepted before: pass in the baseline, with torch [\d.]+", page)
        (row,) = [row for row in table.splitlines() if f"`{cell}` | {place}" in row]
        assert row.endswith("| pass |")
        assert shown in row
    assert "| newly red | pass | fail at structure (opset) | `stuck/13/cpu` |" in table
    assert "nox" not in table


def test_the_page_for_browsers(branch: Path) -> None:
    text = (branch / "reports/index.html").read_text()
    block = text.partition('<script id="data" type="application/json">')[2].partition("</script>")
    rows = {row["model"]: row for row in json.loads(block[0])["rows"]}
    for cell, place, what, line in BROKE:
        row = rows[cell.partition("/")[0]]
        (outcome,) = row["outcomes"]
        assert row["promised"] == place
        assert what in outcome["why"]
        assert outcome.get("lines", "") == line
        assert outcome["since"].startswith("pass in the baseline, with torch ")
        assert row["cells"][0]["reproduce"] == f"uv run exporter repro {cell}"


def test_junit(branch: Path) -> None:
    suites = JUnitXml.fromstring((branch / "reports/junit.xml").read_bytes())
    cases = {case.name: case for suite in suites for case in suite}
    for cell, place, what, line in BROKE:
        case = cases[cell]
        assert case._elem.get("line") == place.rpartition(":")[2]
        said = case.result[0].text
        for part in (what, place, line, "accepted before: pass in the baseline", cell):
            assert part in said
        assert f"uv run exporter repro {cell}" in said


def test_the_command_that_all_of_them_name_shows_it(branch: Path, tmp_path: Path) -> None:
    made = run_exporter(branch, "repro", "baked/17/cpu", str(tmp_path / "baked"))
    assert made.returncode == 0, made.stderr
    environment = {**os.environ, "PYTHONPATH": ""}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "repro.py"],
        cwd=tmp_path / "baked",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr


def test_once_it_is_accepted_the_pages_say_since_when(branch: Path) -> None:
    accepted = run_exporter(branch, "baseline", "update", "--reason", "the old ones are gone")
    assert accepted.returncode == 0, accepted.stderr
    page = (branch / "reports/models/stuck.md").read_text()
    assert "accepted before: as accepted, since baseline 2 of 2 (before: pass)" in page
    assert "the old ones are gone" in page
    table = (branch / "reports/COMPATIBILITY.md").read_text()
    assert "Not accepted yet" not in table
    assert "| as accepted |" in table
