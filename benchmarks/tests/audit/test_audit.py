"""The audit of small projects, as `nox -f benchmarks/noxfile.py -s audit` runs it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.audit.__main__ import main
from tests.integration.project import make_project, run_exporter

Audit = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).parents[3]
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


@pytest.fixture
def audit(project: Path, capsys: pytest.CaptureFixture[str]) -> Audit:
    """Return a function that audits cells of the project in this process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = main(["--root", str(project), *arguments])
        return subprocess.CompletedProcess([*arguments], code, *capsys.readouterr())

    return run


def test_the_checks_catch_all_mutants_of_a_linear_layer(project: Path, audit: Audit) -> None:
    built = hash_files(project / "build" / "good")
    arguments = ("good/17", "--mutants", "40", "--seed", "3")
    command = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit", "--root", str(project), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert command.returncode == 0, command.stdout + command.stderr
    assert "good/17/cpu: 40 mutants; caught 100.0% of those" in command.stdout
    assert hash_files(project / "build" / "good") == built
    kinds = {line.split()[0] for line in command.stdout.splitlines()}
    assert kinds >= {"weight", "attribute", "shape", "header"}
    (checks,) = [line for line in command.stdout.splitlines() if line.startswith("caught by ")]
    assert all(name in checks for name in ("opset", "signature", "wellformed", "parity"))
    assert str(project) not in command.stdout
    assert audit(*arguments).stdout == command.stdout


def test_a_share_below_the_threshold_fails_and_lists_survivors_with_reasons(audit: Audit) -> None:
    command = audit("table", "--mutants", "40", "--threshold", "1")
    assert command.returncode == 1, command.stdout + command.stderr
    survivors = [line for line in command.stdout.splitlines() if line.startswith("survived: ")]
    assert survivors
    assert all("everywhere: output 'y' differs" in line for line in survivors)


def test_rows_that_no_sample_reads_are_compared_with_the_weight(audit: Audit) -> None:
    command = audit("copied", "--mutants", "40", "--threshold", "0.9")
    assert command.returncode == 0, command.stdout + command.stderr
    caught = re.search(r"^caught by .*tables (\d+)", command.stdout, re.MULTILINE)
    assert caught
    assert int(caught[1]) > 10
    # One index of 2000 may be in no sample, so a mutant that needs this index may survive.
    survivors = re.findall(r"^survived: (\w+)", command.stdout, re.MULTILINE)
    assert set(survivors) <= {"condition"}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("raises/17", "raises/17/cpu: cannot be audited: its status is error"),
        ("good/16", "good/16/cpu: cannot be audited: it has no result"),
        ("godo", "did you mean 'good'?"),
    ],
)
def test_only_a_green_cell_is_audited(cell: str, message: str, audit: Audit) -> None:
    command = audit(cell)
    assert command.returncode == 2
    assert message in command.stderr
    assert "Traceback" not in command.stderr
