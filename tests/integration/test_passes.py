"""The recipes of docs/recipes.md, passes that fail, and the files that a reproducer needs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from exporter.records.record import Culprit, Stage, Status
from tests.integration.project import ROOT, read_cells, run_exporter, write_project
from tests.script_runner import run_script

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))
"""
BROKEN = """
import os
import signal
import time

import onnx


def same(source, target):
    target.write_bytes(source.read_bytes())


def negate(source, target, operator="Relu"):
    model = onnx.load(source)
    for node in model.graph.node:
        if node.op_type == operator:
            node.op_type = "Neg"
    onnx.save(model, target)


def hang(source, target):
    time.sleep(1000)


def crash(source, target):
    os.kill(os.getpid(), signal.SIGSEGV)
"""
ENTRIES = """
[models.same]
extends = "net"
passes = ["broken.py:same"]

[models.negated]
extends = "net"
passes = ["broken.py:same", { call = "broken.py:negate", operator = "Relu" }, "broken.py:same"]

[models.hanging]
extends = "net"
passes = ["broken.py:hang"]
timeout = "8s"

[models.crashing]
extends = "net"
passes = ["broken.py:crash"]
"""


def read_block(language: str, name: str) -> str:
    """Return the block of the page that begins with the name of a file."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"```{language}\n# manifests/{name}\n(.*?)```", page, re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("passes")
    text = read_block("toml", "net.toml") + ENTRIES
    if importlib.util.find_spec("onnxslim") is None:
        text = text.replace('"passes.py:slim"', '"broken.py:same"')
    passes = read_block("python", "passes.py")
    files = {"net.py": NET, "broken.py": BROKEN, "passes.py": passes, "net.toml": text}
    return write_project(root, files)


def test_the_recipes_are_green_and_broken_passes_are_named(project: Path) -> None:
    run = run_exporter(project, "export", "--jobs", "2", code=1)
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    assert page.partition("```text\n")[2].partition("\n```")[0] in run.stdout
    records = {cell.partition("/")[0]: record for cell, record in read_cells(project).items()}
    recipes = ["net", "net-slim", "net-float16", "net-dynamic", "net-static", "same"]
    assert [records[name].status for name in recipes] == [Status.PASS] * len(recipes), run.stdout
    sizes = [records[name].artifact.bytes for name in ("net", "net-float16")]  # type: ignore[union-attr]
    assert sizes[1] < sizes[0]
    assert "QuantizeLinear" in records["net-static"].artifact.operators  # type: ignore[union-attr]
    assert not (project / "build/net-slim/passes").exists()

    assert "pass 1 of 1 (broken.py:same) changes nothing; remove it" in records["same"].notes
    negated = records["negated"]
    assert negated.message.startswith("pass 2 of 3 (broken.py:negate) breaks the file: output")
    assert negated.blame is not None
    assert negated.blame.culprit is Culprit.PASS
    assert negated.blame.evidence[0] == "before the pass: right"
    assert negated.blame.first is not None
    assert negated.blame.first.operator == "Neg"
    assert negated.blame.first.against == "the file before the pass"
    kept = sorted(path.parent.name for path in (project / "build/negated").rglob("passes/*/*/*"))
    assert kept == ["0", "1", "2", "3"]

    hanging, crashing = records["hanging"], records["crashing"]
    assert (hanging.status, hanging.stage) == (Status.TIMEOUT, Stage.CONVERT)
    assert "pass 1 of 1 (broken.py:hang): its process did not finish within 4 s" in hanging.message
    assert (crashing.status, crashing.stage) == (Status.CRASH, Stage.CONVERT)
    assert "(broken.py:crash): its process was terminated by SIGSEGV" in crashing.message

    overview = (project / "reports/COMPATIBILITY.md").read_text(encoding="utf-8")
    variants = overview.partition("## Variants")[2].partition("##")[0]
    rows = [line.split(" | ")[0] for line in variants.splitlines() if line.startswith("| ")]
    assert rows[2:5] == ["| [net](models/net.md)", "| ↳ [net-slim](models/net-slim.md)",
                         "| ↳ [net-float16](models/net-float16.md)"]  # fmt: skip


def test_the_reproducer_has_the_files_around_the_broken_pass(project: Path) -> None:
    run_exporter(project, "repro", "negated/18/cpu", "repro", code=0)
    assert {path.name for path in (project / "repro/passes").iterdir()} == {"before", "after"}
    result = run_script(project / "repro/repro.py")
    assert result.returncode == 1, result.stdout
    assert "the file before the pass is right" in result.stdout


def test_code_and_arguments_of_a_pass_are_dependencies(project: Path) -> None:
    code = project / "manifests" / "broken.py"
    code.write_text(BROKEN + "\nUNUSED = 1\n", encoding="utf-8")
    run = run_exporter(project, "plan", "same", "net", "net-dynamic")
    assert "manifests/broken.py changed" in run.stdout
    assert run.stdout.count("changed") == 1
    manifest = project / "manifests" / "net.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("per_channel = true", "per_channel = false"), encoding="utf-8")
    run = run_exporter(project, "plan", "net-dynamic")
    assert "its manifest entry changed" in run.stdout
