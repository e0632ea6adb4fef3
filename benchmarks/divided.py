"""Measure one model whose opsets two workers share, next to one worker for all of them.

Input: a directory. Output: a `Section`. The model was exported before, because the split needs the
stage times of an earlier run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section
from benchmarks.measure import Failed, Spent, must, spend
from benchmarks.project import matrix_project

MODEL, OPSETS = "densenet121", "18..25"
EXPORT = (sys.executable, "-m", "exporter", "export", "--force", "--no-store", "--jobs")


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: a small model, once."""
    model, rounds = ("mobilenet_v3_small", 1) if quick else (MODEL, 3)
    matrix_project(place, (model,), OPSETS)
    must(spend((*EXPORT, "2"), place))
    divided: list[Spent] = []
    whole: list[Spent] = []
    for _ in range(rounds):
        divided.append(must(spend((*EXPORT, "2"), place)))
        _require_opsets(place / "build" / model, 4)
        whole.append(must(spend((*EXPORT, "1"), place)))
        _require_opsets(place / "build" / model, 8)
    figures = [
        _share("wall time", [spent.wall for spent in divided], [spent.wall for spent in whole]),
        _share(
            "seconds of a core", [spent.cpu for spent in divided], [spent.cpu for spent in whole]
        ),
    ]
    about = (
        f"{model} at opsets {OPSETS}, all made again by two workers, each of which captures it, "
        f"against one; medians of {rounds} pairs."
    )
    return Section(name="divided", about=about, figures=figures)


def _share(what: str, divided: list[float], whole: list[float]) -> Figure:
    ours, theirs = median(divided), median(whole)
    said = f"{ours / theirs:.0%} ({ours:.1f} s and {theirs:.1f} s)"
    return Figure(what=f"{what}, as a share of one worker's", measured=said)


def _require_opsets(folder: Path, count: int) -> None:
    """Check that the expected number of workers exported the model.

    Raises:
        Failed: Other workers exported it.
    """
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    if len(job["opsets"]) != count:
        raise Failed(f"a worker made {len(job['opsets'])} of 8 opsets, and not {count}")
