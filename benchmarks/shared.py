"""Measure exports with a remote store next to exports without one.

Input: a directory. Output: a `Section`. The remote store is a folder of the same machine, so the
figures are the cost of the program and not that of a network.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section
from benchmarks.measure import must, spend
from benchmarks.project import matrix_project

MODELS, OPSETS = ("alexnet", "dcgan", "mobilenet_v3_small"), "18..20"
EXPORT = (sys.executable, "-m", "exporter", "export")


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both in turn; `quick`: a small model, once."""
    models, rounds = (("mobilenet_v3_small",), 1) if quick else (MODELS, 3)
    matrix_project(place, models, OPSETS)
    without = {"EXPORTER_STORE": "off"}
    remote = {"EXPORTER_STORE": f"file://{place}/.server"}
    uploads, plain, restores = [], [], []
    for _ in range(rounds):
        shutil.rmtree(place / "build", ignore_errors=True)
        plain.append(must(spend(EXPORT, place, without)).wall)
        shutil.rmtree(place / "build")
        shutil.rmtree(place / ".server", ignore_errors=True)
        uploads.append(must(spend(EXPORT, place, remote)).wall)
        shutil.rmtree(place / "build")
        restores.append(must(spend(EXPORT, place, remote), "restored from the store").wall)
    figures = [
        _compare("an export that uploads all cells", uploads, plain),
        _compare("an export that restores all cells", restores, plain),
    ]
    about = (
        f"{', '.join(models)} at opsets {OPSETS} from nothing, with a remote store in a folder, "
        f"against no store; medians of {rounds} rounds."
    )
    return Section(name="shared", about=about, figures=figures)


def _compare(what: str, ours: list[float], theirs: list[float]) -> Figure:
    share = median(a / b for a, b in zip(ours, theirs, strict=True))
    measured = f"{share:.0%} ({median(ours):.1f} s and {median(theirs):.1f} s)"
    return Figure(what=f"{what}, as a share of one without a store", measured=measured)
