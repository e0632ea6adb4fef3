"""Reproducers contain the files of their models: saved programs, TorchScript, weights."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch.export import Dim

from tests.integration.project import format_entry, read_cells, run_exporter, write_project
from tests.integration.test_repro import reproduce

CODE = """
import torch
from torch import nn


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.mean() > 0):
            return x + 1
        return x - 1


class PartlyScripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.branch = torch.jit.script(Branch())

    def forward(self, x):
        return self.branch(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)
"""

WEIGHTS = 'weights = { file = "w.pt", key = "model", strip = "module.", prefix = "linear." }'
CELLS = {
    "program": ("net.pt2", 18, ""),
    "fixed": ("fixed.pt2", 18, ""),
    "script": ("net.pt", 13, ""),
    "partly_scripted": ("code.py:PartlyScripted", 13, ""),
    "weights": ("code.py:Net", 18, WEIGHTS),
    "weight_inputs": ("code.py:Net", 13, "options.export_params = false"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = (
        format_entry(id, source, "axes.batch = { example = 3 }", more, opsets=opset)
        for id, (source, opset, more) in CELLS.items()
    )
    files = {"code.py": CODE, "saved.toml": "format = 1\n" + "".join(entries)}
    root = write_project(tmp_path_factory.mktemp("saved") / "project", files)
    folder = root / "manifests"
    model = torch.nn.Linear(4, 3).eval()
    shapes = ({0: Dim.DYNAMIC},)
    torch.export.save(
        torch.export.export(model, (torch.zeros(5, 4),), dynamic_shapes=shapes), folder / "net.pt2"
    )
    torch.export.save(torch.export.export(model, (torch.zeros(3, 4),)), folder / "fixed.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the deprecation of TorchScript
        torch.jit.script(model).save(str(folder / "net.pt"))
    state = {f"module.{name}": weight for name, weight in model.state_dict().items()}
    torch.save({"epoch": 3, "model": state}, folder / "w.pt")
    run_exporter(root, "export", code=1)
    return root


@pytest.mark.parametrize("model", [model for model in CELLS if model != "fixed"])
def test_a_reproducer_contains_the_files_of_its_model(
    project: Path, tmp_path: Path, model: str
) -> None:
    opset = CELLS[model][1]
    record = read_cells(project)[f"{model}/{opset}/cpu"]
    process = reproduce(project, model, tmp_path / "made")
    assert record.status == "pass", record.message
    assert process.returncode == 0, process.stdout
    assert "it does not reproduce" in process.stdout


def test_a_program_for_one_size_has_no_reproducer(project: Path, tmp_path: Path) -> None:
    record = read_cells(project)["fixed/18/cpu"]
    assert (record.status, record.check) == ("fail", "signature")
    assert record.blame is not None
    assert record.blame.culprit == "contract"
    command = run_exporter(project, "repro", "fixed", str(tmp_path / "made"), code=3)
    assert "fixed/18/cpu: PyTorch itself breaks the contract" in command.stderr
