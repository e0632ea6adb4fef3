"""`exporter diff A B` prints the differences of two result files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import Status, read_run
from tests.integration.project import run_exporter
from tests.integration.results import write_results


@pytest.fixture
def project(project: Path) -> Path:
    """Return a project with equal `old.json`, results and baseline."""
    shutil.copy(project / "build/results.json", project / "old.json")
    return project


NEW, ACCEPTED = "build/results.json", "reports/baseline"


@pytest.mark.parametrize(
    "pair", [("old.json", NEW), (ACCEPTED, NEW), (NEW, f"{ACCEPTED}/net.json")]
)
def test_equal_files_have_no_difference(project: Path, pair: tuple[str, str]) -> None:
    command = run_exporter(project, "diff", *pair)
    assert (command.returncode, command.stdout) == (0, "2 cells, no difference\n"), command.stderr


def test_differences_of_cells_and_tools_are_printed_in_both_directions(project: Path) -> None:
    write_results(project, _18=Status.FAIL)
    new = read_run(project / NEW)
    tools = {"torch": "2.14.0"}
    records = new.records[1:]
    changed = new.model_copy(update={"tools": tools, "records": records})
    (project / NEW).write_text(changed.to_json())
    command = run_exporter(project, "diff", "old.json", NEW, code=1)
    assert command.stdout.splitlines() == [
        "torch: 2.13.0 -> 2.14.0",
        "net/18/cpu: newly red: pass -> fail at parity",
        "net/17/cpu: missing: pass -> no result",
        "2 differences",
    ]
    reverse = run_exporter(project, "diff", NEW, "old.json")
    assert (reverse.returncode, reverse.stdout.splitlines()[1:]) == (
        1,
        [
            "net/18/cpu: fixed: fail at parity -> pass",
            "net/17/cpu: new cell, green: no result -> pass",
            "2 differences",
        ],
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 9}', '{"records": 3}', "\x00", "[" * 10**5]
)
def test_a_file_that_is_neither_results_nor_baseline_is_an_error(project: Path, text: str) -> None:
    (project / "other.json").write_text(text)
    command = run_exporter(project, "diff", "old.json", "other.json")
    assert (command.returncode, "other.json" in command.stderr) == (5, True)
    assert "Traceback" not in command.stderr


def test_a_folder_without_a_baseline_is_no_empty_one(project: Path) -> None:
    (project / "empty").mkdir()
    for pair in (("empty", NEW), (NEW, "empty"), ("empty", "empty")):
        command = run_exporter(project, "diff", *pair, code=5)
        assert command.stderr.startswith("empty: is a folder without a baseline; "), pair


def test_a_report_that_cannot_read_the_baseline_is_no_success(project: Path) -> None:
    run_exporter(project, "report", code=0)
    (project / ACCEPTED / "net.json").write_text("<<<<<<< HEAD")
    command = run_exporter(project, "report", code=5)
    assert "warning: the tables compare with no baseline: " in command.stderr


@pytest.mark.parametrize("name", ["notes.json", "net.json"])
def test_a_baseline_replaces_no_file_of_the_user(project: Path, name: str) -> None:
    path = project / ACCEPTED / name
    path.write_text('{"mine": 1}')
    for words in (["baseline"], ["baseline", "update", "--reason", "test"]):
        command = run_exporter(project, *words, code=5)
        assert name in command.stderr
        assert path.read_text() == '{"mine": 1}'


def test_a_missing_file_is_an_error(project: Path) -> None:
    missing = run_exporter(project, "diff", "old.json", "nothing.json")
    assert (missing.returncode, "nothing.json" in missing.stderr) == (2, True)


def test_a_page_marks_the_changed_cells(project: Path) -> None:
    write_results(project, _18=Status.FAIL, tools={"torch": "2.14.0"})
    run_exporter(project, "diff", "old.json", NEW, "--html", "diff.html", code=1)
    page = (project / "diff.html").read_text()
    assert "compared with torch 2.13.0; changed: torch 2.13.0 to 2.14.0" in page
    assert page.count('"is_changed":true') == 1
    assert '"acceptance":"pass in the baseline, with torch 2.13.0"' in page
    refused = run_exporter(project, "diff", NEW, ACCEPTED, "--html", "diff.html")
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert "reports/baseline: is a baseline without details; give a results.json" in (
        refused.stderr
    )
