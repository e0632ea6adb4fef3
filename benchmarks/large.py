"""Measure the memory of large models, from the first export to the published folder.

    python -m benchmarks.large [--sizes 2.2,4] [--exporters dynamo,torchscript] [--limit 1.1]

Output: for each size in GB and each exporter, a table with the largest anonymous and mapped memory
of all processes in each phase, as a share of the weights, and `reports/large/*.svg` with both over
time. The exit code is 1 if a cell is not green, or if anonymous memory exceeds `limit` times the
weights. Linux only: shared pages count once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT, MemorySample, spend
from exporter.records.record import Status, read_run

WIDTH = 8320
PER_LAYER = (WIDTH * WIDTH + WIDTH) * 4

#: The functions of the worker that begin a phase, below `exporter`.
PHASES = {
    "worker.job_runner._compute_reference": "reference",
    "worker.export_steps.require_capture": "capture",
    "worker.export_steps.export_program": "conversion",
    "worker.export_steps.export_module": "conversion",
    "worker.export_steps._write_file": "save",
    "worker.file_check.FileCheck.run": "checks of the file",
    "worker.verify.run_checks.run_structure_checks": "structure",
    "worker.verify.run_checks.open_session": "load of the session",
    "worker.verify.run_checks._run_checks": "proof",
    "worker.reference.review.review_reference": "review",
}

MODEL = f'''
import functools
import pkgutil
import sys
import time
from pathlib import Path

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


PHASES = {PHASES!r}
LOG = Path(__file__).parents[1] / "phases.txt"
ACTIVE = []


def write(name):
    with LOG.open("a") as file:
        file.write(f"{{time.time()}} {{name}}\\n")


def mark(function, phase):
    @functools.wraps(function)
    def call(*args, **kwargs):
        ACTIVE.append(phase)
        write(phase)
        try:
            return function(*args, **kwargs)
        finally:
            ACTIVE.pop()
            write(ACTIVE[-1] if ACTIVE else "other")
    return call


if "exporter.worker.job_runner" in sys.modules:
    write("source")
    for path, phase in PHASES.items():
        owner, _, name = path.rpartition(".")
        owner = pkgutil.resolve_name(f"exporter.{{owner}}")  # a module, or a class in it
        setattr(owner, name, mark(getattr(owner, name), phase))
'''

MANIFEST = f"""
format = 1

[models.large]
source = "models.py:Large"
init = {{{{ layers = {{layers}} }}}}
inputs = [{{{{ name = "x", shape = ["batch", {WIDTH}] }}}}]
outputs = [{{{{ name = "y", shape = ["batch", {WIDTH}] }}}}]
opsets = [{{opsets}}]
exporter = "{{exporter}}"
timeout = "30m"
"""


NO_PREPACKING = """
[tool.exporter.devices.cpu]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
session_options = { "session.disable_prepacking" = true }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The largest memory of one phase."""

    name: str
    start: float
    """The time of its first sample."""
    seconds: float
    anonymous: int
    mapped: int


def main() -> int:
    """Measure every size with every exporter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default="2.2,4", help="of the weights, in GB")
    parser.add_argument("--exporters", default="dynamo,torchscript")
    parser.add_argument("--opsets", default="17,18", help="dynamo leaves out those below 18")
    parser.add_argument("--limit", type=float, default=1.1, help="times the weights")
    parser.add_argument(
        "--no-prepacking", action="store_true", help="prove without ONNX Runtime's packed weights"
    )
    parser.add_argument("--pictures", type=Path, default=ROOT / "reports/large")
    chosen = parser.parse_args()
    is_fine = True
    for size in chosen.sizes.split(","):
        for exporter in chosen.exporters.split(","):
            layers = max(1, round(float(size) * 1e9 / PER_LAYER))
            numbers = [int(each) for each in chosen.opsets.split(",")]
            opsets = [each for each in numbers if exporter == "torchscript" or each >= 18]
            with tempfile.TemporaryDirectory(prefix="large-") as folder:
                free, needed = shutil.disk_usage(folder).free, 6 * PER_LAYER * layers
                if free < needed:
                    print(f"{folder}: {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are needed")
                    return 1
                device = NO_PREPACKING if chosen.no_prepacking else ""
                root = project(Path(folder), layers, exporter, opsets, device)
                suffix = "-no-prepacking" if chosen.no_prepacking else ""
                picture = chosen.pictures / f"{exporter}-{size}{suffix}.svg"
                is_fine = run(root, PER_LAYER * layers, chosen.limit, picture) and is_fine
    return 0 if is_fine else 1


def run(root: Path, weights: int, limit: float, picture: Path) -> bool:
    """Run the commands of a user in order and print their memory; return False if it is wrong."""
    print(f"## {picture.stem}: {weights / 1e9:.2f} GB of weights", flush=True)
    samples: list[MemorySample] = []
    marks: list[tuple[float, str]] = []
    is_fine = True
    for command in ("export", "baseline", "gate", "publish"):
        more = ["large", "--initial", "dist"] if command == "publish" else []
        program = [sys.executable, "-m", "exporter", command, *more]
        measured = spend(program, root, every=0.05)
        print(measured.output, end="")
        print(f"{command}: {measured.wall:.1f} s, exit code {measured.code}", flush=True)
        if measured.code:
            return False
        samples += measured.samples
        marks += [(each.time, command) for each in measured.samples[:1]]
    for line in (root / "phases.txt").read_text("utf-8").splitlines():
        moment, _, name = line.partition(" ")
        marks.append((float(moment), name))
    phases = divide(samples, sorted(marks))
    for line in format_table(phases, weights):
        print(line)
    peak = max(each.anonymous for each in samples) / weights
    print(f"anonymous memory: at most {peak:.2f} times the weights, the limit is {limit}")
    for record in read_run(root / "build/results.json").records:
        print(f"{record.cell}: {record.status} {record.message} {dict(record.seconds)}")
        is_fine = is_fine and record.status is Status.PASS
    for folder in ("build/large", "dist"):
        files = [path for path in (root / folder).rglob("*") if path.is_file()]
        inodes = {path.stat().st_ino: path.stat().st_size for path in files}
        print(f"{folder}: {sum(inodes.values()) / weights:.2f} times the weights on the disk")
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text("\n".join(draw(samples, phases, weights)), encoding="utf-8")
    return is_fine and peak <= limit


def divide(samples: Sequence[MemorySample], marks: Sequence[tuple[float, str]]) -> list[Phase]:
    """Return the phases with at least one sample, in their order."""
    groups: list[tuple[str, list[MemorySample]]] = []
    times = [moment for moment, _ in marks]
    for sample in samples:
        name = marks[max(0, bisect_right(times, sample.time) - 1)][1]
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(sample)
    return [
        Phase(
            name=name,
            start=group[0].time,
            seconds=group[-1].time - group[0].time,
            anonymous=max(each.anonymous for each in group),
            mapped=max(each.mapped for each in group),
        )
        for name, group in groups
    ]


def format_table(phases: Sequence[Phase], weights: int) -> list[str]:
    """Return the lines of a table; phases with one name are one row."""
    lines = ["| phase | seconds | anonymous | mapped |", "|---|---|---|---|"]
    for name in dict.fromkeys(phase.name for phase in phases):
        same = [phase for phase in phases if phase.name == name]
        seconds = sum(phase.seconds for phase in same)
        anonymous = max(phase.anonymous for phase in same) / weights
        mapped = max(phase.mapped for phase in same) / weights
        lines.append(f"| {name} | {seconds:.1f} | {anonymous:.2f} | {mapped:.2f} |")
    return lines


_WIDTH, _HEIGHT, _LEFT, _TOP = 1000, 320, 46, 120
#: More points would not be visible.
_POINTS = 1000


def draw(samples: Sequence[MemorySample], phases: Sequence[Phase], weights: int) -> list[str]:
    """Return the lines of an SVG: memory over time, as a multiple of the weights."""
    first, last = samples[0].time, samples[-1].time
    top = max(1.2, *(max(each.anonymous, each.mapped) / weights for each in samples))

    def across(moment: float) -> float:
        return _LEFT + (moment - first) / (last - first) * _WIDTH

    def down(times: float) -> float:
        return _TOP + _HEIGHT * (1 - times / top)

    width, height = _LEFT + _WIDTH + 20, _TOP + _HEIGHT + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<g font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for times in (0, 0.5, 1, 1.1, *(0.5 * step for step in range(3, int(top * 2) + 1))):
        y, color = down(times), "#c00" if times == 1.1 else "#ddd"
        lines.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="{color}"/>')
        lines.append(f'<text x="{_LEFT - 26}" y="{y + 4:.1f}">{times:g}</text>')
    previous = -100.0
    for phase in phases:
        x = across(phase.start)
        lines.append(f'<path d="M{x:.1f} {_TOP}v{_HEIGHT}" stroke="#bbb" stroke-dasharray="2 3"/>')
        if x - previous > 11:  # names of short phases would cover each other
            place = f"translate({x + 4:.1f} {_TOP - 6}) rotate(-60)"
            lines.append(f'<text transform="{place}">{phase.name}</text>')
            previous = x
    size = -(-len(samples) // _POINTS)
    groups = [samples[first : first + size] for first in range(0, len(samples), size)]
    for attribute, color in (("mapped", "#2a7"), ("anonymous", "#00c")):
        points = " ".join(
            f"{across(group[0].time):.1f},"
            f"{down(max(getattr(each, attribute) for each in group) / weights):.1f}"
            for group in groups
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
    text = f"blue: anonymous memory, green: mapped files, in {weights / 1e9:.2f} GB of weights; "
    lines.append(f'<text x="{_LEFT}" y="{height - 14}">{text}{last - first:.0f} seconds</text>')
    return [*lines, "</g></svg>"]


def project(
    root: Path, layers: int, exporter: str, opsets: Sequence[int], device: str = ""
) -> Path:
    """Create a project with this model only."""
    (root / "manifests").mkdir()
    (root / "pyproject.toml").write_text(f"[tool.exporter]\n{device}", encoding="utf-8")
    (root / "manifests/models.py").write_text(MODEL, encoding="utf-8")
    text = MANIFEST.format(
        layers=layers, exporter=exporter, opsets=", ".join(str(each) for each in opsets)
    )
    (root / "manifests/large.toml").write_text(text, encoding="utf-8")
    return root


if __name__ == "__main__":
    sys.exit(main())
