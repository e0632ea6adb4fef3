"""A plugin in another distribution adds a runtime that the export uses."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.records.record import Status
from tests.integration.project import ROOT, make_project, read_cells, run_exporter
from tests.runtime_plugin import NAME, install_runtime_plugin

SETTINGS = f"""
[tool.exporter.defaults]
devices = ["fast"]

[tool.exporter.devices.fast]
runtime = "{NAME}"
device = "npu"
"""


def test_an_export_proves_a_file_with_the_runtime_of_a_plugin(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", settings=SETTINGS, opsets="17", sound="Good")
    packages = install_runtime_plugin(tmp_path / "site")
    path = os.pathsep.join((str(ROOT), str(packages)))
    run_exporter(root, "export", "--jobs", "1", PYTHONPATH=path, code=0)
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
