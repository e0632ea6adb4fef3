"""Measure a matrix from nothing next to the usual loop: seconds, CPU seconds, memory.

Input: a directory. Output: a `Section`. Both export every model at every opset. The loop
(`loop.py`) checks each file, runs it on one input and compares with PyTorch. The export proves all
promises. The last row compares the first command on a new clone of this repository, all its models
at all opsets on all devices, with the same loop.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section, at_least, at_most
from benchmarks.measure import ROOT, Failed, Spent, must, spend
from benchmarks.project import matrix_project
from benchmarks.stages import IRREDUCIBLE, inference, records_of, total
from exporter.records.record import Record

MODELS = (
    "alexnet",
    "squeezenet1_1",
    "resnet18",
    "densenet121",
    "mobilenet_v3_small",
    "vit_tiny",
    "word_lm_transformer",
    "dcgan_generator",
)
OPSETS = range(18, 26)
#: Speed-up over the wall time of the loop, with two workers.
FASTER = 12.0
#: Share of the loop's CPU time.
CPU = 0.25
#: Times the loop's memory.
MEMORY = 1.5
#: CPU time of the first command on a new clone, against the loop's.
FIRST = 1.25
#: Share of the CPU time in work that no tool can avoid.
USED = 0.85
WORKERS = 2
_EXPORT = (sys.executable, "-m", "exporter", "export")
#: Seconds between two measurements of memory.
_EVERY = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Exports and one loop from the same run."""

    exports: tuple[Spent, ...]
    """The timed ones, without measurement of memory."""
    peak: int
    """Peak bytes of one more export."""
    loop: Spent
    records: tuple[tuple[Record, ...], ...]
    """Seconds by stage of each timed export."""
    right: int
    """Files that the loop accepts."""
    first: Spent
    """The first command on a new clone."""


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: one small model at two opsets."""
    models: Sequence[str] = ("squeezenet1_1",) if quick else MODELS
    opsets = range(18, 20) if quick else OPSETS
    clone = place / "clone"
    must(spend(["git", "clone", "-q", str(ROOT), str(clone)], place))
    selected = ("alexnet/18/cpu",) if quick else ()
    # Its environments are a part of the cost. The packages of the worker are not: the loop needs
    # them too.
    first = must(spend([*_EXPORT, *selected], clone, {"PYTHONPATH": str(clone)}))
    pair = pair_of(place / "matrix", models, opsets, first, rounds=1 if quick else 3)
    cells = len(models) * len(opsets)
    green = min(sum(record.status.is_green for record in each) for each in pair.records)
    about = (
        f"{', '.join(models)} at opsets {opsets[0]} to {opsets[-1]}, from "
        f"nothing, at {WORKERS} workers; medians of {len(pair.exports)} exports against one loop, "
        "the exports first, and the memory of one more: to look at it takes time of a core. "
        f"{green} of {cells} cells were proved; the loop, in one process, was content with "
        f"{pair.right} of {cells} files."
    )
    return Section(name="cold", about=about, figures=list(_figures(pair, aimed=not quick)))


def pair_of(
    place: Path, models: Sequence[str], opsets: range, first: Spent, *, rounds: int
) -> Pair:
    """Run both.

    Raises:
        Failed: The export left a cell without a record, or the loop did not finish.
    """
    place.mkdir(exist_ok=True)
    matrix_project(place, models, f"{opsets[0]}..{opsets[-1]}")
    cells = len(models) * len(opsets)
    exports, records = zip(*(_export(place, cells) for _ in range(rounds)), strict=True)
    looked_at, _ = _export(place, cells, every=_EVERY)
    script = str(ROOT / "benchmarks/loop.py")
    arguments = [sys.executable, script, "manifests/matrix.toml", str(place / "loop")]
    loop = must(spend(arguments, place, every=_EVERY))
    lines = loop.output.splitlines()
    right = sum(_says(line, "ok") for line in lines)
    if right + sum(_says(line, "failed:") for line in lines) != cells:
        raise Failed(f"the loop did not come to its end:\n{loop.output[-4000:]}")
    return Pair(
        exports=exports,
        peak=looked_at.peak,
        loop=loop,
        records=records,
        right=right,
        first=first,
    )


def _export(place: Path, cells: int, *, every: float = 0.0) -> tuple[Spent, tuple[Record, ...]]:
    """Export from nothing once."""
    for made in ("build", "reports"):
        shutil.rmtree(place / made, ignore_errors=True)
    spent = spend([*_EXPORT, "--jobs", str(WORKERS)], place, every=every)
    records = records_of(place)
    if len(records) != cells:
        raise Failed(f"{len(records)} cells have a record:\n{spent.output}")
    return spent, records


def _says(line: str, word: str) -> bool:
    """Return whether it is a line about a file: `alexnet/18 ok 3.21`."""
    words = line.split(" ")
    return len(words) > 2 and words[1] == word and words[0].count("/") == 1


def _figures(pair: Pair, *, aimed: bool) -> Sequence[Figure]:
    loop = pair.loop
    cores = min(WORKERS, len(os.sched_getaffinity(0)))
    seconds = median(each.wall for each in pair.exports)
    core = median(each.cpu for each in pair.exports)
    wall, cpu, memory = loop.wall / seconds, core / loop.cpu, pair.peak / loop.peak
    ran = median(inference(each) for each in pair.records)
    needed = median(total(each, IRREDUCIBLE) for each in pair.records) + ran
    all_of_it = median(total(each) for each in pair.records)
    used = needed / (cores * seconds)
    usual = median(record.seconds.get("convert", 0.0) for each in pair.records for record in each)
    rows = [
        at_least(
            "wall time, the loop's over the export's",
            wall,
            FASTER,
            f"{wall:.1f} times ({loop.wall:.0f} s and {seconds:.0f} s)",
            " times",
        ),
        at_most(
            "seconds of a core, as a share of the loop's",
            cpu,
            CPU,
            f"{cpu:.0%} ({core:.0f} s and {loop.cpu:.0f} s)",
            "%",
        ),
        at_most(
            "memory of all processes, against the loop's",
            memory,
            MEMORY,
            f"{memory:.2f} times ({pair.peak / 1e9:.2f} GB and {loop.peak / 1e9:.2f} GB)",
            " times",
        ),
        at_least(
            "share of the CPU time in work that no tool can avoid",
            used,
            USED,
            f"{used:.0%} ({needed:.0f} s of {cores} x {seconds:.0f} s, {ran:.0f} of them "
            f"inference; with all checks {all_of_it / (cores * seconds):.0%})",
            "%",
        ),
        Figure(what="conversion of one opset, median", measured=f"{usual:.2f} s"),
        at_most(
            "seconds of a core of `nox -s export` on a new clone, against the loop's",
            pair.first.cpu / loop.cpu,
            FIRST,
            f"{pair.first.cpu / loop.cpu:.2f} times ({pair.first.cpu:.0f} s and {loop.cpu:.0f} s)",
            " times",
        ),
    ]
    if aimed:
        return rows
    return [Figure(what=row.what, measured=row.measured) for row in rows]
