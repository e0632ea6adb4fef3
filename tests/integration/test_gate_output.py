"""The gate writes annotations and a comment for a GitHub job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import format_entry, run_exporter, write_project
from tests.integration.results import write_results

#: In names, because messages that differ only in digits are one finding.
LETTERS = str.maketrans("0123456789", "abcdefghij")


def write_entries(root: Path, count: int) -> None:
    ids = (f"net{index}".translate(LETTERS) for index in range(count))
    entries = "".join(format_entry(id, "net.py:Net", opsets="[17, 18]") for id in ids)
    (root / "manifests/net.toml").write_text(f"format = 1\n{entries}")


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in a folder of the checkout, with twelve accepted green models."""
    root = tmp_path_factory.mktemp("accepted") / "models"
    write_project(root, {"net.py": "class Net: ...\n"})
    write_entries(root, 12)
    write_results(root)
    assert run_exporter(root, "baseline").returncode == 0
    return root


@pytest.fixture
def project(accepted: Path, tmp_path: Path) -> Path:
    """Return a copy of the project."""
    return Path(shutil.copytree(accepted, tmp_path / "models"))


def list_annotations(stdout: str) -> list[str]:
    levels = ("::error ", "::warning ", "::notice ")
    return [line for line in stdout.splitlines() if line.startswith(levels)]


def test_findings_are_annotated_at_their_entries_and_the_others_are_counted(project: Path) -> None:
    write_results(project, Status.FAIL, message="::error::forged\n::error::again {}")
    job = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(project.parent)}
    gate = run_exporter(project, "gate", **job, code=1)
    annotations = list_annotations(gate.stdout)
    assert len(annotations) == 10
    assert annotations[0].startswith(
        "::error title=neta/17..18/cpu%3A newly red,file=models/manifests/net.toml,line=3::"
        "pass -> fail"
    )
    assert annotations[-1].startswith("::error title=And 3 more::")
    folded = gate.stdout.partition(" in full\n")[2].partition("::endgroup::\n")
    assert ": newly red: pass -> fail" in folded[0]
    assert "Blocks the merge" in folded[2]
    comment = (project / "build/comment.md").read_text()
    assert comment.startswith(
        "<!-- exporter gate -->\n### ❌ Blocks the merge: 12 of 12 changed models"
    )
    assert "netbb/17..18/cpu" in comment
    assert "; code `E-worker`" in comment
    assert not list_annotations(run_exporter(project, "gate").stdout)
    # What is only better blocks until it is accepted, and is no error.
    run_exporter(project, "baseline")
    write_results(project)
    better = run_exporter(project, "gate", **job, code=1)
    assert {line.split()[0] for line in list_annotations(better.stdout)} == {"::notice"}


def test_a_gate_without_findings_writes_no_annotations(project: Path) -> None:
    gate = run_exporter(project, "gate", GITHUB_ACTIONS="true", code=0)
    assert not list_annotations(gate.stdout)
    assert "### ✅ May merge" in (project / "build/comment.md").read_text()


def test_a_comment_keeps_its_size_limit(project: Path) -> None:
    write_entries(project, 200)
    write_results(project, Status.FAIL, message="é" * 250 + "{}")
    assert run_exporter(project, "gate").returncode == 1
    comment = (project / "build/comment.md").read_text()
    assert len(comment.encode()) <= 65_536
    assert "more lines are in `gate.md`" in comment


@pytest.mark.parametrize("arguments", [("check", "--root", "models"), ("check", "--root=models")])
def test_problems_of_a_manifest_are_annotated_at_their_line(
    project: Path, arguments: tuple[str, ...]
) -> None:
    text = (project / "manifests/net.toml").read_text()
    (project / "manifests/net.toml").write_text(text.replace("source", "sauce", 1))
    repository = project.parent
    process = run_exporter(
        repository, *arguments, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(repository), code=2
    )
    assert any(
        "file=models/manifests/net.toml,line=4::" in line
        for line in list_annotations(process.stdout)
    )
