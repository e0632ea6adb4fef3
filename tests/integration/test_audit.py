"""The audit command stores its result and the page of the model shows it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from exporter.records.audit import Audit
from tests.integration.project import make_project, run_exporter

TABLE = """
import torch
from torch import nn


class Table(nn.Module):
    '''Two thousand rows; a sample reads a few rows, and the lookup uses a computed table.'''

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(2000, 3)

    def forward(self, index):
        return nn.functional.embedding(index, self.rows.weight * 2)


class Copied(Table):
    def forward(self, index):
        return self.rows(index)
"""
ENTRY = """
[models.{id}]
source = "table.py:{source}"
inputs = [
  {{ name = "index", shape = ["batch"], dtype = "int64", fill = {{ randint = [0, 2000] }} }},
]
outputs = [{{ name = "y", shape = ["batch", 3] }}]
opsets = [17]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a linear layer, two lookup tables and a model that fails."""
    root = make_project(tmp_path_factory.mktemp("audit") / "project", good="Good", raises="Raises")
    (root / "manifests" / "table.py").write_text(TABLE, encoding="utf-8")
    entries = ENTRY.format(id="table", source="Table") + ENTRY.format(id="copied", source="Copied")
    (root / "manifests" / "table.toml").write_text(f"format = 1\n{entries}", encoding="utf-8")
    command = run_exporter(root, "export", "good/17", "table", "copied", "raises/17")
    assert "3 pass" in command.stdout, command.stdout + command.stderr
    return root


def hash_files(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_checks_catch_all_mutants_of_a_linear_layer(project: Path) -> None:
    built = hash_files(project / "build" / "good")
    command = run_exporter(project, "audit", "good/17", "--mutants", "40", "--seed", "3")
    assert command.returncode == 0, command.stdout + command.stderr
    assert "good/17/cpu: 40 mutants; caught 100.0% of those" in command.stdout
    assert hash_files(project / "build" / "good") == built
    stored = project / "reports" / "audits" / "good" / "17.cpu.json"
    first = stored.read_bytes()
    audit = Audit.model_validate_json(first)
    assert {tally.kind for tally in audit.tallies} >= {"weight", "attribute", "shape", "header"}
    assert {"opset", "signature", "wellformed", "parity"} <= set(audit.caught_by)
    assert str(project).encode() not in first

    assert (
        run_exporter(project, "audit", "good/17", "--mutants", "40", "--seed", "3").returncode == 0
    )
    assert stored.read_bytes() == first

    assert run_exporter(project, "report").returncode == 0
    page = (project / "reports" / "models" / "good.md").read_text(encoding="utf-8")
    assert "<b>Audit</b>" in page
    assert "| good/17/cpu | 40 |" in page


def test_a_share_below_the_threshold_fails_and_lists_survivors_with_reasons(project: Path) -> None:
    command = run_exporter(project, "audit", "table", "--mutants", "40", "--threshold", "1")
    assert command.returncode == 1, command.stdout + command.stderr
    assert "survived: weight: " in command.stdout
    stored = project / "reports" / "audits" / "table" / "17.cpu.json"
    audit = Audit.model_validate_json(stored.read_bytes())
    assert audit.share < 1
    assert all("everywhere: output 'y' differs" in item.reason for item in audit.survivors)


def test_rows_that_no_sample_reads_are_compared_with_the_weight(project: Path) -> None:
    command = run_exporter(project, "audit", "copied", "--mutants", "40", "--threshold", "0.9")
    assert command.returncode == 0, command.stdout + command.stderr
    stored = project / "reports" / "audits" / "copied" / "17.cpu.json"
    audit = Audit.model_validate_json(stored.read_bytes())
    assert audit.caught_by["tables"] > 10
    # One index of 2000 may be in no sample, so a mutant that needs this index may survive.
    assert {survivor.kind for survivor in audit.survivors} <= {"condition"}


@pytest.mark.parametrize(
    ("cell", "code", "message"),
    [
        ("raises/17", 3, "raises/17/cpu: cannot be audited: its status is error"),
        ("good/16", 3, "good/16/cpu: cannot be audited: it has no result"),
        ("godo", 3, "did you mean 'good'?"),
    ],
)
def test_only_a_green_cell_is_audited(cell: str, code: int, message: str, project: Path) -> None:
    command = run_exporter(project, "audit", cell)
    assert command.returncode == code
    assert message in command.stderr
    assert "Traceback" not in command.stderr
