"""The ratio of times: with calls of known duration, and by the command."""

from __future__ import annotations

import json
import time
from pathlib import Path

from exporter.worker.verify.latency import measure_ratio
from tests.integration.project import make_project, read_cells, run_exporter

SLOW = """

class Slow(Good):
    '''Slow in PyTorch, fast in a file.'''

    def forward(self, x):
        if not torch.onnx.is_in_onnx_export():
            time.sleep(0.02)
        return super().forward(x)
"""


def test_ratio_is_that_of_the_medians() -> None:
    calls = iter(range(10**6))

    def slow() -> None:  # one slow call does not change a median
        time.sleep(1.0 if next(calls) == 3 else 0.03)

    def quick() -> None:
        time.sleep(0.01)

    ratio, turns = measure_ratio(slow, quick)
    assert turns >= 5
    assert 2 < ratio < 4
    assert 0.2 < measure_ratio(quick, slow)[0] < 0.5


def test_latency_is_measured_if_requested_and_the_gate_reports_growth(
    tmp_path: Path,
) -> None:
    root = make_project(tmp_path / "project", good="Good", slow="Slow")
    models, manifest = root / "manifests/models.py", root / "manifests/tiny.toml"
    models.write_text(models.read_text() + SLOW)
    entries = manifest.read_text().replace("[16, 17]", "17")
    manifest.write_text(entries + "latency = true\n")
    command = run_exporter(root, "export")
    assert command.returncode == 0, command.stdout + command.stderr

    def read_ratio(model: str) -> object:
        record = read_cells(root)[f"{model}/17/cpu"]
        metrics = [result.metrics for result in record.checks if result.check == "latency"]
        return metrics[0]["ratio"] if metrics else None

    assert read_ratio("good") is None
    ratio = read_ratio("slow")
    assert isinstance(ratio, float)
    assert 0 < ratio < 0.2, "PyTorch sleeps for 20 ms"
    assert "ratio" not in (root / "reports/models/slow.md").read_text()
    assert run_exporter(root, "baseline").returncode == 0
    gate = run_exporter(root, "gate")
    assert (gate.returncode, "latency" in gate.stdout) == (0, False)
    # A change of the request makes the result stale.
    manifest.write_text(entries)
    assert "1 cell to run, 1 to keep" in run_exporter(root, "plan").stdout
    manifest.write_text(entries + "latency = true\n")

    models.write_text(models.read_text().replace("time.sleep(0.02)", "time.sleep(0)"))
    assert run_exporter(root, "export").returncode == 0
    gate = run_exporter(root, "gate")
    assert gate.returncode == 0
    assert "slow/17/cpu: warning: latency grown: " in gate.stdout
    (root / "pyproject.toml").write_text("[tool.exporter.gate]\nlatency_grown = 'block'\n")
    assert run_exporter(root, "gate").returncode == 1
    (root / "pyproject.toml").write_text("[tool.exporter.gate]\nlatency_factor = 1000000\n")
    assert run_exporter(root, "gate").returncode == 0
    baseline = json.loads((root / "reports/baseline.json").read_text())
    (accepted,) = [cell for cell in baseline["cells"] if cell["cell"] == "slow/17/cpu"]
    assert 0 < accepted["figures"]["latency"] < 0.2
