"""All outputs of the gate describe the failures of one broken branch.

Each output contains the failure, its line in the manifest and in the model, the last green commit
and the project's own command that reproduces it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.integration.project import format_entry, run_exporter, run_git, write_project
from tests.integration.results import write_results

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


class Stuck(Scorer):
    def forward(self, x):
        y = self.linear(x)
        return y.relu()
"""
BROKEN = """    def forward(self, x):
        return self.linear(x * float(x.detach().abs().max()))
"""
ENTRIES = (
    format_entry("scorer", "nets.py:Scorer"),
    format_entry("baked", "nets.py:Baked"),
    format_entry("stuck", "nets.py:Stuck", opsets=13),
)
MANIFEST = f"format = 1\n{''.join(ENTRIES)}"


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an exported branch that breaks two models and the opset of a third model."""
    root = tmp_path_factory.mktemp("walk") / "project"
    write_project(root, {"nets.py": MODELS, "nets.toml": MANIFEST}, SETTINGS)
    (root / ".gitignore").write_text("build/\n__pycache__/\n")
    models, manifest = root / "manifests/nets.py", root / "manifests/nets.toml"
    write_results(root)
    assert run_exporter(root, "baseline").returncode == 0
    run_git(root, "init", "-q", "-b", "main")
    run_git(root, "add", ":/")
    run_git(root, "commit", "-qm", "accepted", "--date", "2026-03-01T12:00:00Z")
    run_git(root, "checkout", "-qb", "topic")
    broken = MODELS.replace("self.linear(x).relu()", "self.linear(x[:3]).relu()")
    models.write_text(broken.replace("    pass\n", BROKEN))
    manifest.write_text(f'{MANIFEST}exporter = "dynamo"\n')
    run_git(root, "commit", "-qam", "broken")
    assert run_exporter(root, "export").returncode == 1
    return root


@pytest.fixture(scope="module")
def site(branch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a static site of the branch."""
    folder = tmp_path_factory.mktemp("walk") / "site"
    run_exporter(branch, "report", "--site", str(folder), code=0)
    return folder


@pytest.fixture(scope="module")
def gate(branch: Path) -> subprocess.CompletedProcess[str]:
    """Run the gate as in a GitHub job."""
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(branch)}
    environment["GITHUB_STEP_SUMMARY"] = str(branch / "build/summary.md")
    return run_exporter(branch, "gate", "--against", "main", **environment)


def format_last_green(root: Path) -> str:
    """Return the last green commit and its date."""
    day = run_git(root, "show", "--no-patch", "--format=%cs", "main")
    return f"{run_git(root, 'rev-parse', 'main')[:12]} of {day}"


#: PyTorch itself breaks the contract of this cell, so there is nothing to reproduce.
WITHOUT_REPRODUCER = "scorer/17/cpu"
#: Cell, line of its manifest entry, failure, line in the model.
FAILURES = [
    ("scorer/17/cpu", "manifests/nets.toml:3", "PyTorch gives [3, 3]", "manifests/nets.py:11"),
    ("baked/17/cpu", "manifests/nets.toml:9", "times the bound", "manifests/nets.py:16"),
    ("stuck/13/cpu", "manifests/nets.toml:15", "the file has opset 18, expected 13", ""),
]


def has_command(text: str, cell: str) -> bool:
    """Return whether a text has the command for a cell exactly if the cell has a reproducer."""
    return (f"uv run exporter repro {cell}" in text) is (cell != WITHOUT_REPRODUCER)


@pytest.mark.parametrize(("cell", "entry", "failure", "line"), FAILURES)
def test_the_terminal_shows_each_failure_of_the_gate(
    branch: Path,
    gate: subprocess.CompletedProcess[str],
    cell: str,
    entry: str,
    failure: str,
    line: str,
) -> None:
    assert gate.returncode == 1
    lines = [text for text in gate.stdout.splitlines() if not text.startswith("::")]
    index = lines.index(
        next(text for text in lines if text.startswith(f"{cell}: newly red: pass -> "))
    )
    block = "\n".join(lines[index : index + 10])
    for part in (failure, entry, line, f"last green in {format_last_green(branch)}"):
        assert part in block
    assert has_command(block, cell)
    assert "or foresee it, with a reason: `expect = [{ opset = " in gate.stdout


def test_the_terminal_shows_each_failure_of_an_export(branch: Path) -> None:
    command = run_exporter(branch, "export")
    assert "promised at: manifests/nets.toml:9" in command.stdout
    assert "the trace made constants at manifests/nets.py:16" in command.stdout
    assert "uv run exporter repro baked/17/cpu" in command.stdout


def test_annotations_show_each_failure(
    branch: Path, gate: subprocess.CompletedProcess[str]
) -> None:
    for cell, entry, failure, line in FAILURES:
        title = f"title={cell}%3A newly red,file=manifests/nets."
        (annotation,) = [text for text in gate.stdout.splitlines() if title in text]
        for part in (failure, f"promised at {entry}", line, format_last_green(branch)):
            assert part in annotation
        assert has_command(annotation, cell)


@pytest.mark.parametrize("page", ["gate.md", "comment.md", "summary.md"])
def test_comment_and_summary_show_each_failure(
    branch: Path, gate: subprocess.CompletedProcess[str], page: str
) -> None:
    text = (branch / "build" / page).read_text()
    for cell, entry, failure, line in FAILURES:
        section = text.partition(f": `{cell}`\n")[2].partition("\n- **")[0]
        for part in (f"`{entry}`", line, f"last green in {format_last_green(branch)}"):
            assert part in section
        assert has_command(section, cell)
        assert failure.replace("[", "&#91;").replace("]", "&#93;") in text
    assert "nox" not in text


def test_model_pages_and_table_show_each_failure(branch: Path) -> None:
    table = (branch / "reports/COMPATIBILITY.md").read_text()
    for cell, entry, failure, line in FAILURES:
        shown = failure.replace("[", "&#91;").replace("]", "&#93;")
        model = cell.partition("/")[0]
        page = (branch / f"reports/models/{model}.md").read_text()
        for part in (shown, f"`{entry}`", line):
            assert part in page
        assert has_command(page, cell)
        assert re.search(r"accepted before: pass in the baseline, with torch [\d.]+", page)
        (row,) = re.findall(rf"^\| ❌ \| `{cell}` \(new\) \|.*", table, re.MULTILINE)
        assert shown in row
        block = table.partition(f": 1 cell of {model}\n")[2]
        block = re.split(r"\n### |\n</details>", block)[0]
        for part in (f"- promised at: {entry}\n", "- in the baseline: pass\n", line):
            assert part in block
        assert has_command(block, cell)
    assert "nox" not in table


def test_the_browser_page_shows_each_failure(site: Path) -> None:
    text = (site / "index.html").read_text()
    block = text.partition('<script id="data" type="application/json">')[2].partition("</script>")
    rows = {row["model"]: row for row in json.loads(block[0])["rows"]}
    for cell, entry, failure, line in FAILURES:
        row = rows[cell.partition("/")[0]]
        (outcome,) = row["outcomes"]
        assert row["location"] == entry
        assert failure in outcome["reason"]
        assert outcome.get("lines", "") == line
        assert outcome["acceptance"].startswith("pass in the baseline, with torch ")
        assert has_command(row["cells"][0].get("repro_command", ""), cell)


def test_junit_shows_each_failure(site: Path) -> None:
    suites = JUnitXml.fromstring((site / "junit.xml").read_bytes())
    cases = {case.name: case for suite in suites for case in suite}
    for cell, entry, failure, line in FAILURES:
        case = cases[cell]
        assert case._elem.get("line") == entry.rpartition(":")[2]
        lines = case.result[0].text
        for part in (failure, entry, line, "accepted before: pass in the baseline", cell):
            assert part in lines
        assert has_command(lines, cell)


def test_pages_show_the_baseline_of_an_accepted_failure(branch: Path) -> None:
    run_exporter(branch, "baseline", "update", "--reason", "the old ones are gone", code=0)
    page = (branch / "reports/models/stuck.md").read_text()
    assert "accepted before: as accepted: the old ones are gone" in page
    assert "the old ones are gone" in page
    table = (branch / "reports/COMPATIBILITY.md").read_text()
    assert "- in the baseline: as accepted\n" in table
