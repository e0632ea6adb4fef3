"""A compiled library of kernels that lies in the project, by the command, from export to repro."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.records.record import Record, Status, read_run
from tests.integration.project import run_exporter

MODELS = """
import torch
from torch import nn


class Inverse(nn.Module):
    '''An operator that TorchScript's exporter lacks, and ONNX as well.'''

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


def library() -> Path:
    found = importlib.util.find_spec("onnxruntime_extensions")
    if found is None or found.origin is None:
        pytest.skip("onnxruntime_extensions is not installed")
    return next(Path(found.origin).parent.glob("_extensions_pydll*.so"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("custom")
    (root / LIBRARY).parent.mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n")
    (root / "manifests/models.py").write_text(MODELS)
    shutil.copy(library(), root / LIBRARY)
    entries = [
        ENTRY.format(id="inverse", function="symbolic", kernels=KERNELS),
        ENTRY.format(id="wrong", function="wrong", kernels=KERNELS),
        ENTRY.format(id="alone", function="symbolic", kernels=""),
    ]
    (root / "manifests/net.toml").write_text(DEFAULTS + "".join(entries))
    ran = run_exporter(root, "export")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return root


def record(project: Path, model: str) -> Record:
    return read_run(project / "build/results.json").by_cell()[f"{model}/17/cpu"]


def test_compiled_kernels_prove_a_file_right_or_wrong(project: Path) -> None:
    sound = record(project, "inverse")
    assert (sound.status, sound.message) == (Status.PASS, "")
    assert sound.artifact is not None
    assert sound.artifact.operators["ai.onnx.contrib::Inverse"] == 1
    wrong = record(project, "wrong")
    assert (wrong.status, wrong.check) == (Status.FAIL, "parity")
    assert wrong.blame is not None


def test_without_kernels_nothing_is_proved_and_structure_is(project: Path) -> None:
    alone = record(project, "alone")
    assert alone.status is Status.UNAVAILABLE
    assert alone.message == (
        "cpu has no kernel for ai.onnx.contrib::Inverse; "
        "add a library as `ort_library` in custom_ops"
    )
    assert [check.status for check in alone.checks] == [Status.PASS] * len(alone.checks)
    assert {"opset", "wellformed", "signature"} <= {check.check for check in alone.checks}


def test_the_library_counts_as_a_source(project: Path, tmp_path: Path) -> None:
    assert LIBRARY in {source.file for source in record(project, "inverse").sources}
    assert LIBRARY not in {source.file for source in record(project, "alone").sources}
    changed = tmp_path / "changed"
    shutil.copytree(project, changed)
    planned = run_exporter(changed, "plan", "inverse")
    assert f"{LIBRARY} changed" not in planned.stdout
    with (changed / LIBRARY).open("ab") as file:
        file.write(b"\0")
    planned = run_exporter(changed, "plan", "inverse")
    assert f"{LIBRARY} changed" in planned.stdout, planned.stdout + planned.stderr
    (changed / LIBRARY).unlink()
    planned = run_exporter(changed, "plan", "inverse")
    assert planned.returncode == 2
    assert f'the file "{LIBRARY}" does not exist; build the library first' in planned.stderr


def test_a_library_that_lies_elsewhere_counts_too(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "libkernels.so"
    shutil.copy(library(), elsewhere)
    root = tmp_path / "project"
    shutil.copytree(project, root, ignore=shutil.ignore_patterns("build", "reports"))
    with (root / "manifests/models.py").open("a") as file:
        file.write(f"\n\ndef kernels():\n    return {str(elsewhere)!r}\n")
    kernels = ', ort_library = "models.py:kernels"'
    entry = ENTRY.format(id="inverse", function="symbolic", kernels=kernels)
    (root / "manifests/net.toml").write_text(DEFAULTS + entry)
    ran = run_exporter(root, "export")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "../libkernels.so" in record(root, "inverse").packages
    assert "1 to keep" in run_exporter(root, "plan").stdout
    with elsewhere.open("ab") as file:
        file.write(b"\0")
    planned = run_exporter(root, "plan")
    assert "../libkernels.so changed" in planned.stdout, planned.stdout + planned.stderr


@pytest.mark.parametrize(("model", "code"), [("inverse", 0), ("wrong", 1), ("alone", 1)])
def test_a_reproducer_brings_the_library_along(
    model: str, code: int, project: Path, tmp_path: Path
) -> None:
    made = run_exporter(project, "repro", f"{model}/17/cpu", str(tmp_path / "repro"))
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "repro/source" / LIBRARY).exists() == (model != "alone")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "repro/repro.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    if model == "alone":
        assert "ai.onnx.contrib" in ran.stdout
    assert "It has custom operators" in (tmp_path / "repro/README.md").read_text()
