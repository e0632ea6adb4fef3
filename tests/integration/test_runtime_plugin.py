"""A plugin in another distribution adds a runtime that the export uses."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.records.record import Status
from tests.integration.project import ROOT, read_cells, run_exporter, write_project
from tests.runtime_plugin import NAME, install_runtime_plugin

PROJECT = f"""
[tool.exporter.devices.fast]
runtime = "{NAME}"
device = "npu"
"""
MODELS = """
from torch import nn


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def forward(self, x):
        return self.layers(x)
"""
MANIFEST = """
format = 1

[models.sound]
source = "models.py:Sound"
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = 17
devices = ["fast"]
"""


def test_an_export_proves_a_file_with_the_runtime_of_a_plugin(tmp_path: Path) -> None:
    root = tmp_path / "project"
    write_project(root, {"models.py": MODELS, "all.toml": MANIFEST}, PROJECT)
    packages = install_runtime_plugin(tmp_path / "site")
    path = os.pathsep.join((str(ROOT), str(packages)))
    command = run_exporter(root, "export", "--jobs", "1", PYTHONPATH=path)
    assert command.returncode == 0, command.stdout + command.stderr
    record = read_cells(root)["sound/17/fast"]
    assert (record.status, record.message) == (Status.PASS, "")
    placement = next(item for item in record.checks if item.check == "placement")
    assert placement.status is Status.PASS
    assert "ncnn-plugin" in record.packages, "another version of the plugin makes it stale"

    unchanged = run_exporter(root, "plan", PYTHONPATH=path)
    install_runtime_plugin(packages, version="2.0")
    changed = run_exporter(root, "plan", PYTHONPATH=path)
    assert "ncnn-plugin" not in unchanged.stdout
    assert "ncnn-plugin" in changed.stdout, changed.stdout
