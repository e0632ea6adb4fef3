"""Commands use a compiled library of kernels in the project, from export to repro."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from exporter.records.record import Record
from tests.integration.project import read_cells, run_exporter, write_project
from tests.script_runner import run_script

MODELS = """
import torch
from torch import nn


class Inverse(nn.Module):
    '''Uses an operator that neither the TorchScript exporter nor ONNX has.'''

    def forward(self, x):
        return torch.linalg.inv(x + 4 * torch.eye(3))


def symbolic(g, x):
    return g.op("ai.onnx.contrib::Inverse", x).setType(x.type())


def wrong(g, x):
    inverse = g.op("ai.onnx.contrib::Inverse", x).setType(x.type())
    return g.op("Neg", inverse)
"""

DEFAULTS = """
format = 1

[defaults]
source = "models.py:Inverse"
inputs = [{ name = "x", shape = [3, 3] }]
outputs = [{ name = "y", shape = [3, 3] }]
opsets = 17
"""
ENTRY = """
[models.{id}]
options = {{ custom_opsets = {{ "ai.onnx.contrib" = 1 }} }}
custom_ops = [{{ name = "aten::linalg_inv", symbolic = "models.py:{function}"{kernels} }}]
"""
LIBRARY = "manifests/kernels/libkernels.so"
KERNELS = ', ort_library = "kernels/libkernels.so"'


def find_library() -> Path:
    module = importlib.util.find_spec("onnxruntime_extensions")
    if module is None or module.origin is None:
        pytest.skip("onnxruntime_extensions is not installed")
    return next(Path(module.origin).parent.glob("_extensions_pydll*.so"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("custom")
    (root / LIBRARY).parent.mkdir(parents=True)
    shutil.copy(find_library(), root / LIBRARY)
    entries = [
        ENTRY.format(id="inverse", function="symbolic", kernels=KERNELS),
        ENTRY.format(id="wrong", function="wrong", kernels=KERNELS),
        ENTRY.format(id="bare", function="symbolic", kernels=""),
    ]
    write_project(root, {"models.py": MODELS, "net.toml": DEFAULTS + "".join(entries)})
    run_exporter(root, "export", code=1)
    return root


def read_cell(project: Path, model: str) -> Record:
    return read_cells(project)[f"{model}/17/cpu"]


def test_the_library_is_a_source_of_the_record(project: Path, tmp_path: Path) -> None:
    assert LIBRARY in {source.file for source in read_cell(project, "inverse").sources}
    assert LIBRARY not in {source.file for source in read_cell(project, "bare").sources}
    changed = tmp_path / "changed"
    shutil.copytree(project, changed)
    plan = run_exporter(changed, "plan", "inverse")
    assert f"{LIBRARY} changed" not in plan.stdout
    with (changed / LIBRARY).open("ab") as file:
        file.write(b"\0")
    plan = run_exporter(changed, "plan", "inverse")
    assert f"{LIBRARY} changed" in plan.stdout, plan.stdout + plan.stderr
    (changed / LIBRARY).unlink()
    plan = run_exporter(changed, "plan", "inverse")
    assert "inverse: 1 problem; `exporter check` lists them" in plan.stderr
    check = run_exporter(changed, "check", code=2)
    assert f'the file "{LIBRARY}" does not exist; build the library first' in check.stderr


def test_a_library_outside_the_project_is_a_dependency(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "libkernels.so"
    shutil.copy(find_library(), outside)
    root = tmp_path / "project"
    shutil.copytree(project, root, ignore=shutil.ignore_patterns("build", "reports"))
    with (root / "manifests/models.py").open("a") as file:
        file.write(f"\n\ndef kernels():\n    return {str(outside)!r}\n")
    kernels = ', ort_library = "models.py:kernels"'
    entry = ENTRY.format(id="inverse", function="symbolic", kernels=kernels)
    (root / "manifests/net.toml").write_text(DEFAULTS + entry)
    run_exporter(root, "export", code=0)
    assert "../libkernels.so" in read_cell(root, "inverse").packages
    assert "1 to keep" in run_exporter(root, "plan").stdout
    with outside.open("ab") as file:
        file.write(b"\0")
    plan = run_exporter(root, "plan")
    assert "../libkernels.so changed" in plan.stdout, plan.stdout + plan.stderr


@pytest.mark.parametrize(("model", "code"), [("inverse", 0), ("wrong", 1), ("bare", 1)])
def test_a_reproducer_contains_the_library(
    model: str, code: int, project: Path, tmp_path: Path
) -> None:
    run_exporter(project, "repro", f"{model}/17/cpu", str(tmp_path / "repro"), code=0)
    assert (tmp_path / "repro/source" / LIBRARY).exists() == (model != "bare")
    process = run_script(tmp_path / "repro/repro.py")
    assert process.returncode == code, process.stdout
    if model == "bare":
        assert "ai.onnx.contrib" in process.stdout
    assert "It has custom operators" in (tmp_path / "repro/README.md").read_text()
