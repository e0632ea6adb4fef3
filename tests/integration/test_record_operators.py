"""Each record has the operators of its model."""

from __future__ import annotations

from pathlib import Path

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
"""


def test_every_record_lists_the_operators_of_its_model(tmp_path: Path) -> None:
    write_project(tmp_path, {"models.py": MODELS, "all.toml": MANIFEST})
    assert run_exporter(tmp_path, "export", "--jobs", "1").returncode == 1
    records = read_cells(tmp_path)
    assert records["good/17/cpu"].torch_operators == {"aten::linear": 1, "aten::relu_": 1}
    captured = records["good/18/cpu"].torch_operators
    assert captured == {"aten.linear.default": 1, "aten.relu_.default": 1}
    for cell, name in (("lacking/17/cpu", "aten::"), ("lacking/18/cpu", "aten.")):
        assert records[cell].status is Status.ERROR
        used = [key for key in records[cell].torch_operators if key.startswith(name)]
        assert any("airy_ai" in key for key in used), "also if the conversion fails"
