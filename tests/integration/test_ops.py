"""`exporter ops` lists the missing operators of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode
from exporter.records.record import Status
from tests.integration.project import read_cells, run_exporter, write_project

MODELS = """
import torch
from torch import nn


class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x).relu_()


class Lacking(Good):
    def forward(self, x):
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return super().forward(y + torch.special.airy_ai(x))
"""
MANIFEST = """
format = 1

[models.good]
source = "models.py:Good"
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = [17, 18]

[models.lacking]
extends = "good"
source = "models.py:Lacking"

[models.never]
extends = "good"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ops")
    write_project(root, {"models.py": MODELS, "all.toml": MANIFEST})
    assert run_exporter(root, "export", "good", "lacking", "--jobs", "1").returncode == ExitCode.RED
    return root


def test_every_record_lists_the_operators_of_its_model(project: Path) -> None:
    records = read_cells(project)
    assert records["good/17/cpu"].torch_operators == {"aten::linear": 1, "aten::relu_": 1}
    captured = records["good/18/cpu"].torch_operators
    assert captured == {"aten.linear.default": 1, "aten.relu_.default": 1}
    for cell, name in (("lacking/17/cpu", "aten::"), ("lacking/18/cpu", "aten.")):
        assert records[cell].status is Status.ERROR
        used = [key for key in records[cell].torch_operators if key.startswith(name)]
        assert any("airy_ai" in key for key in used), "also if the conversion fails"


def test_a_model_with_missing_operators_is_red_and_lists_all_of_them(project: Path) -> None:
    command = run_exporter(project, "ops", "lacking")
    assert command.returncode == ExitCode.RED
    lines = [" ".join(line.split()) for line in command.stdout.splitlines()]
    assert "lacking: TorchScript 17: missing operators" in lines
    assert "aten::special_bessel_j0 2x 17 manifests/models.py:17" in lines
    assert "aten::special_airy_ai 1x 17 manifests/models.py:18" in lines
    assert "lacking: dynamo 18: missing operators" in lines
    assert "prims.bessel_j0.default 2x 18 manifests/models.py:17" in lines


def test_a_model_without_missing_operators_is_green(project: Path) -> None:
    command = run_exporter(project, "ops", "never/18")
    assert command.returncode == ExitCode.OK
    assert "never: dynamo 18: all operators supported" in command.stdout
    assert not (project / "build" / "never").exists(), "the command exports no file"


def test_an_unknown_cell_is_an_error(project: Path) -> None:
    command = run_exporter(project, "ops", "lackin")
    assert command.returncode == ExitCode.NOTHING_SELECTED
    assert "did you mean 'lacking'?" in command.stderr
