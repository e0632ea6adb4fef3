"""A reproducer is made for a cell, and run where this package does not exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.records.record import Culprit, read_run
from tests.integration.project import run_exporter

MODELS = """
import torch
from torch import nn

from parts import shifted


class Sound(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x):
        return shifted(self.linear(x))


class Baked(Sound):
    '''Scales by a number of the example.'''

    def forward(self, x):
        return super().forward(x * float(x.detach().abs().max()))


class Lacking(Sound):
    def forward(self, x):
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return super().forward(y + torch.special.airy_ai(x))


class Fixed(Sound):
    '''Takes three rows.'''

    def forward(self, x):
        return super().forward(x) + torch.zeros(3, 1)


class Scaled(Sound):
    '''Has a number that nobody passes.'''

    def forward(self, x, scale=2.0):
        return super().forward(x) * scale


class Pairs(nn.Module):
    '''By keyword, with a constant.'''

    def forward(self, left, right, scale=1.0):
        return {"y": (left - right) * scale}
"""

ENTRY = """
[models.{id}]
source = "models.py:{source}"
init = {{ width = 4 }}
inputs = [{{ name = "x", shape = ["batch", 4] }}]
outputs = [{{ name = "y", shape = ["batch", 3] }}]
opsets = {opsets}
"""

PAIRS = """
[models.pairs]
source = "models.py:Pairs"
inputs = [
  { name = "right", shape = ["batch", 4], at = "kwargs.right" },
  { name = "left", shape = ["batch", 4], at = "kwargs.left" },
]
constants = [{ at = "kwargs.scale", value = 3.0 }]
outputs = [{ name = "y", shape = ["batch", 4] }]
opsets = [17, 18]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six models, exported."""
    root = tmp_path_factory.mktemp("repro") / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n")
    (root / "manifests/models.py").write_text(MODELS)
    (root / "manifests/parts.py").write_text("def shifted(x):\n    return x + 1\n")
    entries = {"sound": "[18]", "baked": "[17]", "lacking": "[17, 18]", "fixed": "[18]"}
    entries["scaled"] = "[17]"
    text = "format = 1\n" + "".join(
        ENTRY.format(id=id, source=id.title(), opsets=opsets) for id, opsets in entries.items()
    )
    (root / "manifests/nets.toml").write_text(text + PAIRS)
    command = run_exporter(root, "export")
    assert command.returncode == 1, command.stdout + command.stderr
    return root


def reproduce(project: Path, cell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Makes the reproducer and runs it elsewhere, without this package and without the project."""
    made = run_exporter(project, "repro", cell, str(folder))
    assert made.returncode == 0, made.stdout + made.stderr
    for text in (folder / "repro.py").read_text(), (folder / "README.md").read_text():
        assert str(project) not in text
        assert "import exporter" not in text
    # The package may be installed in this environment: a blocker stands for one where it is not.
    blocked = folder.parent / f"{folder.name}-blocked"
    blocked.mkdir()
    (blocked / "exporter.py").write_text("raise ImportError('not here')\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CI")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "repro.py")],
        cwd=blocked,
        env={**environment, "PYTHONPATH": str(blocked)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_wrong_numbers_are_reproduced_with_both_sides(project: Path, tmp_path: Path) -> None:
    record = read_run(project / "build/results.json").by_cell()["baked/17/cpu"]
    assert record.blame is not None
    assert record.blame.culprit is Culprit.EXPORTER
    ran = reproduce(project, "baked/17/cpu", tmp_path / "baked")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "WRONG: output y is off by" in ran.stdout
    assert "output y: PyTorch float32 [7, 3]" in ran.stdout
    assert "output y: the file float32 [7, 3]" in ran.stdout
    readme = (tmp_path / "baked/README.md").read_text()
    assert 'source = "models.py:Baked"' in readme
    assert "[models.lacking]" not in readme
    assert "Culprit: exporter" in readme
    assert "manifests/models.py:" in readme


@pytest.mark.parametrize("opset", [17, 18])
def test_a_failing_conversion_is_reproduced(project: Path, tmp_path: Path, opset: int) -> None:
    record = read_run(project / "build/results.json").by_cell()[f"lacking/{opset}/cpu"]
    assert [item.count for item in record.missing] == [2, 1]
    assert "(and 1 more operator missing)" in record.message
    ran = reproduce(project, f"lacking/{opset}/cpu", tmp_path / "lacking")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "WRONG: " in ran.stdout
    assert "bessel_j0" in ran.stdout + ran.stderr
    readme = (tmp_path / "lacking/README.md").read_text()
    assert "bessel_j0" in readme
    assert "airy_ai" in readme


def test_a_failing_capture_is_reproduced(project: Path, tmp_path: Path) -> None:
    record = read_run(project / "build/results.json").by_cell()["fixed/18/cpu"]
    assert record.stage == "capture"
    assert record.advice == (
        "dimension 0 of input 'x' is always 3 in this model: replace 'batch' by 3",
    )
    ran = reproduce(project, "fixed", tmp_path / "fixed")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "inferred a static shape of 3" in ran.stderr


@pytest.mark.parametrize("cell", ["sound/18/cpu", "pairs/17/cpu", "pairs/18/cpu", "scaled/17/cpu"])
def test_a_green_cell_does_not_reproduce(project: Path, tmp_path: Path, cell: str) -> None:
    ran = reproduce(project, cell, tmp_path / "green")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "it does not reproduce" in ran.stdout
    assert "WRONG" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pairs"], "'pairs' matches 2 cells; name one of them"),
        (["sond/18/cpu"], "did you mean 'sound'?"),
    ],
)
def test_no_cell_or_several_are_refused(project: Path, arguments: list[str], message: str) -> None:
    command = run_exporter(project, "repro", *arguments)
    assert command.returncode == 3
    assert message in command.stderr


def test_a_folder_with_other_files_is_left_alone(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    command = run_exporter(project, "repro", "sound/18/cpu", str(tmp_path))
    assert command.returncode == 4
    assert "contains other files" in command.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
