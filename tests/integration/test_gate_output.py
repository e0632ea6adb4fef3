"""The gate writes annotations and a comment for a GitHub job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.manifest import load_project
from exporter.pipeline.decisions import FingerprintCache
from exporter.planning.plan import make_plan
from exporter.records.record import RunRecord, Status
from tests.integration.project import run_exporter, write_project
from tests.unit.factory import make_record

LETTERS = str.maketrans("0123456789", "abcdefghij")
ENTRY = """
[models.net{index}]
source = "net.py:Net"
inputs = [{{ name = "x", shape = ["batch", 4] }}]
outputs = [{{ name = "y", shape = ["batch", 3] }}]
opsets = [17, 18]
"""


def write_uniform_results(root: Path, status: Status, message: str = "") -> None:
    manifest = load_project(root)
    fingerprints = FingerprintCache(manifest)
    records = tuple(
        make_record(
            str(planned.cell),
            status,
            route=planned.route,
            # Letters, because messages that differ only in digits are one finding.
            message=message + planned.cell.model.translate(LETTERS) if message else "",
            fingerprint=fingerprints.get_cell_parts(planned.cell),
        )
        for planned in make_plan(manifest).cells
    )
    (root / "build").mkdir(exist_ok=True)
    (root / "build/results.json").write_text(RunRecord(tools={}, records=records).to_json())


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in a folder of the checkout, with twelve accepted green models."""
    root = tmp_path_factory.mktemp("accepted") / "models"
    write_project(root, {"net.py": "class Net: ...\n"})
    entries = (ENTRY.format(index=index) for index in range(12))
    (root / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    write_uniform_results(root, Status.PASS)
    assert run_exporter(root, "baseline").returncode == 0
    return root


@pytest.fixture
def project(accepted: Path, tmp_path: Path) -> Path:
    """Return a copy of the project."""
    return Path(shutil.copytree(accepted, tmp_path / "models"))


def list_annotations(stdout: str) -> list[str]:
    return [line for line in stdout.splitlines() if line.startswith("::")]


def test_findings_are_annotated_at_their_entries_and_the_others_are_counted(project: Path) -> None:
    write_uniform_results(project, Status.FAIL, "::error::forged\n::error::again")
    job = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(project.parent)}
    gate = run_exporter(project, "gate", **job)
    assert gate.returncode == 1
    annotations = list_annotations(gate.stdout)
    assert len(annotations) == 10
    assert annotations[0].startswith(
        "::error title=net0/17..18/cpu%3A newly red,file=models/manifests/net.toml,line=3::"
        "pass -> fail"
    )
    assert annotations[-1].startswith("::error title=And 3 more::")
    comment = (project / "build/comment.md").read_text()
    assert comment.startswith(
        "<!-- exporter gate -->\n### ❌ Blocks the merge: 12 of 12 changed models"
    )
    assert "net11/17..18/cpu" in comment
    assert "; code `E-worker`" in comment
    assert not list_annotations(run_exporter(project, "gate").stdout)
    # What is only better blocks until it is accepted, and is no error.
    run_exporter(project, "baseline")
    write_uniform_results(project, Status.PASS)
    better = run_exporter(project, "gate", **job)
    assert better.returncode == 1
    assert {line.split()[0] for line in list_annotations(better.stdout)} == {"::notice"}


def test_a_gate_without_findings_writes_no_annotations(project: Path) -> None:
    gate = run_exporter(project, "gate", GITHUB_ACTIONS="true")
    assert gate.returncode == 0
    assert not list_annotations(gate.stdout)
    assert "### ✅ May merge" in (project / "build/comment.md").read_text()


def test_a_comment_keeps_its_size_limit(project: Path) -> None:
    entries = (ENTRY.format(index=index) for index in range(200))
    (project / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    write_uniform_results(project, Status.FAIL, "é" * 250)
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
        repository, *arguments, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(repository)
    )
    assert process.returncode == 2
    assert any(
        "file=models/manifests/net.toml,line=4::" in line
        for line in list_annotations(process.stdout)
    )
