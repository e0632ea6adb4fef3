"""Latency, load time and memory: measured if requested, shown, and compared by the gate."""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median

from exporter.worker.verify.measurement import time_alternately
from tests.integration.project import make_project, read_cells, run_exporter

SLOW = """

class Slow(Good):
    '''Slow in PyTorch, fast in a file.'''

    def forward(self, x):
        if not torch.onnx.is_in_onnx_export():
            time.sleep(0.02)
        return super().forward(x)
"""


def test_times_alternate_and_the_median_ignores_one_slow_call() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(1.0 if len(calls) == 5 else 0.03)

    def quick() -> None:
        calls.append("quick")
        time.sleep(0.01)

    slow_times, quick_times = time_alternately(slow, quick)
    assert len(slow_times) == len(quick_times) >= 5
    assert 2 < median(slow_times) / median(quick_times) < 5
    assert calls[2:6] == ["quick", "slow", "slow", "quick"]


def test_files_are_measured_if_requested(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good", slow="Slow")
    models, manifest = root / "manifests/models.py", root / "manifests/tiny.toml"
    models.write_text(models.read_text() + SLOW)
    entries = manifest.read_text().replace("[16, 17]", "17")
    manifest.write_text(entries + 'measure = ["latency", "load", "memory"]\n')
    command = run_exporter(root, "export")
    assert command.returncode == 0, command.stdout + command.stderr

    cells = read_cells(root)
    assert cells["good/17/cpu"].measurements is None
    measured = cells["slow/17/cpu"].measurements
    assert measured is not None
    assert measured.latency is not None
    assert 0 < measured.latency.ratio < 0.2, "PyTorch sleeps for 20 ms"
    assert measured.latency.median <= measured.latency.p95
    assert measured.load is not None
    assert 0 < measured.load.seconds < 10
    assert measured.memory is not None
    assert 0 < measured.memory.bytes < 1 << 28
    page = (root / "reports/models/slow.md").read_text()
    assert "Measurements" in page
    assert "Measurements" not in (root / "reports/models/good.md").read_text()

    assert run_exporter(root, "baseline").returncode == 0
    gate = run_exporter(root, "gate")
    assert (gate.returncode, "latency" in gate.stdout) == (0, False)
    # A change of the request makes the result stale.
    manifest.write_text(entries)
    assert "1 cell to run, 1 to keep" in run_exporter(root, "plan").stdout
    baseline = json.loads((root / "reports/baseline/slow.json").read_text())
    (accepted,) = [cell for cell in baseline["cells"] if cell["cell"] == "slow/17/cpu"]
    assert 0 < accepted["figures"]["latency"] < 0.2


def test_seconds_are_printed_if_requested(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    command = run_exporter(root, "export", "--timings")
    assert "time of the workers: " in command.stdout
    assert "of that, by check: " in command.stdout
