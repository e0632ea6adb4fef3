"""A model that fails once and then passes without a change is flaky."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.records.record import Status, read_run
from tests.integration.project import make_project, run_exporter

FAILS_ONCE = """

class Once(Good):
    def forward(self, x):
        # No dependency of the record is in this folder.
        marker = Path("/dev/shm", str(Path(__file__).parents[2].name))
        session = str(os.getsid(0))
        if torch.onnx.is_in_onnx_export():
            if not marker.exists():
                marker.write_text(session)
            if marker.read_text() == session:  # every attempt of the first worker fails
                raise RuntimeError("not today")
        return super().forward(x)
"""


def test_the_gate_reports_a_flaky_cell_until_it_is_accepted(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"flaky-{os.getpid()}"
    request.addfinalizer(lambda: Path("/dev/shm", name).unlink(missing_ok=True))
    folder = tmp_path / name / "project"
    root = make_project(folder, more_models=FAILS_ONCE, opsets="17", once="Once")

    def read_outcome() -> tuple[Status, str]:
        (record,) = read_run(root / "build/results.json").records
        return record.status, record.flaky

    assert run_exporter(root, "export").returncode == 1
    assert read_outcome() == (Status.ERROR, "")
    assert run_exporter(root, "export", "--force").returncode == 0
    status, flaky = read_outcome()
    assert (status, "was error" in flaky) == (Status.PASS, True)
    (root / "reports/baseline").mkdir(parents=True)
    (root / "reports/baseline/once.json").write_text(
        '{"format": 4, "tools": {}, "cells": [{"cell": "once/17/cpu", "status": "pass"}]}'
    )
    gate = run_exporter(root, "gate")
    assert (gate.returncode, "once/17/cpu: flaky: pass -> pass" in gate.stdout) == (1, True)
    assert "very same inputs" in gate.stdout
    assert run_exporter(root, "report").returncode == 0
    assert (
        "`once/17/cpu`"
        in (root / "reports/models/once.md").read_text().partition("Two runs with")[2]
    )
    assert "## Flaky" in (root / "reports/COMPATIBILITY.md").read_text()
    assert run_exporter(root, "baseline").returncode == 0
    assert run_exporter(root, "gate").returncode == 0
