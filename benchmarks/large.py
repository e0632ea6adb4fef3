"""Measure the memory of a model of more than 2 GB, from the first export to the gate.

    python -m benchmarks.large [--layers 8] [--opsets 17,18] [--limit 3]

Output: for each command its seconds and the peak memory of all its processes. The exit code is 1 if
a cell is not green, or if the memory exceeds `limit` times the weights. Linux only: memory is the
proportional set size (PSS), which counts shared pages once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import spend
from exporter.records.record import read_run

WIDTH = 8320
PER_LAYER = (WIDTH * WIDTH + WIDTH) * 4

MODEL = f'''
import torch
from torch import nn

WIDTH = {WIDTH}


class Large(nn.Module):
    """Residual layers, so that the output keeps its scale."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x
'''

MANIFEST = f"""
format = 1

[models.large]
source = "models.py:Large"
init = {{{{ layers = {{layers}} }}}}
inputs = [{{{{ name = "x", shape = ["batch", {WIDTH}] }}}}]
outputs = [{{{{ name = "y", shape = ["batch", {WIDTH}] }}}}]
opsets = [{{opsets}}]
timeout = "30m"
"""


def main() -> int:
    """Run the commands and print their cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--opsets", default="17,18")
    parser.add_argument("--limit", type=float, default=3.0, help="times the weights")
    chosen = parser.parse_args()
    weights = PER_LAYER * chosen.layers
    print(f"weights: {weights / 1e9:.2f} GB", flush=True)
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        free = shutil.disk_usage(folder).free
        if free < 4 * weights:
            print(f"{folder}: {free / 1e9:.0f} GB free, {4 * weights / 1e9:.0f} GB are needed")
            return 1
        return run(project(Path(folder), chosen.layers, chosen.opsets), weights, chosen.limit)


def run(root: Path, weights: int, limit: float) -> int:
    """Run the commands of a user, in order."""
    is_fine = True
    for command in ("export", "baseline", "gate"):
        measured = spend([sys.executable, "-m", "exporter", command], root, every=0.05)
        print(measured.output, end="")
        times = measured.peak / weights
        print(
            f"{command:9} {measured.wall:6.1f} s  peak {measured.peak / 1e9:5.2f} GB  "
            f"{times:4.2f} times the weights  exit code {measured.code}",
            flush=True,
        )
        is_fine = is_fine and measured.code == 0 and times <= limit
    for record in read_run(root / "build/results.json").records:
        print(f"{record.cell}: {record.status} {record.message} {dict(record.seconds)}")
    data = sum(path.stat().st_size for path in (root / "build/large").glob("*.data"))
    print(f"weights on disk: {data / 1e9:.2f} GB")
    return 0 if is_fine else 1


def project(root: Path, layers: int, opsets: str) -> Path:
    """Create a project with this model only."""
    (root / "manifests").mkdir()
    (root / "pyproject.toml").write_text("[tool.exporter]\n", encoding="utf-8")
    (root / "manifests/models.py").write_text(MODEL, encoding="utf-8")
    text = MANIFEST.format(layers=layers, opsets=opsets)
    (root / "manifests/large.toml").write_text(text, encoding="utf-8")
    return root


if __name__ == "__main__":
    sys.exit(main())
