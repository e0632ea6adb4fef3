"""A device with an environment: its files run in another process, and nothing else changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.environments import STAMP, find_interpreter
from exporter.manifest import load_settings
from exporter.records.record import Status
from tests.integration.project import read_cells, run_exporter

SETTINGS = """
[tool.exporter.environments.own]
requirements = ["onnxruntime==0.0.1"]

[tool.exporter.environments.bad]
requirements = ["onnxruntime==0.0.2"]
python = "no-such-python"

[tool.exporter.devices.own]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "own"

[tool.exporter.devices.bad]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "bad"
"""
MODEL = (
    "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return -x\n"
)
MANIFEST = """
format = 1

[models.net]
source = "net.py:Net"
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 4] }]
opsets = 17
devices = ["cpu", "own", "bad"]
"""


def install(root: Path, version: str) -> None:
    """Write an environment with a Python that has the packages of this one."""
    (environment,) = [each for each in load_settings(root).environments if each.name == "own"]
    folder = load_settings(root).environments_folder / environment.definition.key
    interpreter = find_interpreter(folder)
    interpreter.parent.mkdir(parents=True, exist_ok=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    stamp = {"requirements": environment.requirements, "packages": {"onnxruntime": version}}
    (folder / STAMP).write_text(json.dumps(stamp))


def test_an_export_uses_the_environments_of_its_devices(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / "manifests" / "net.py").write_text(MODEL)
    (tmp_path / "manifests" / "net.toml").write_text(MANIFEST)
    install(tmp_path, "0.0.1")
    command = run_exporter(tmp_path, "export", "--jobs", "1")
    assert command.returncode == 0, command.stdout + command.stderr
    records = read_cells(tmp_path)
    proved, plain = records["net/17/own"], records["net/17/cpu"]
    assert (proved.status, proved.runtime) == (Status.PASS, "onnxruntime 0.0.1")
    assert (plain.status, plain.runtime) == (Status.PASS, "")
    assert proved.sources == plain.sources, "files of the environment are no dependencies"
    assert proved.packages == plain.packages
    assert not proved.untracked
    failed = records["net/17/bad"]
    assert failed.status is Status.UNAVAILABLE
    assert failed.message.startswith("pyproject.toml:5: the environment bad cannot be created: ")
    assert "'no-such-python' does not exist" in failed.message

    assert "onnxruntime of own" not in run_exporter(tmp_path, "plan").stdout
    install(tmp_path, "0.0.2")
    assert "onnxruntime of own 0.0.1 -> 0.0.2" in run_exporter(tmp_path, "plan").stdout
