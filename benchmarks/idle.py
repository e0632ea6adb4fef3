"""Measure an export with nothing to do next to `ninja` with as many targets.

Input: the number of cells. Output: a `Section`. Both check each output file and its inputs. Both
ran before, so their caches are complete.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section, at_most
from benchmarks.measure import Spent, must, spend
from benchmarks.project import made_project

EXPORT = (sys.executable, "-m", "exporter", "export")
NINJA = (sys.executable, "-m", "ninja")
#: Limits in seconds by number of cells.
SIZES = {1_000: 0.4, 10_000: 1.5}
#: Limit for the cost of a further cell, relative to a further target.
TIMES = 5.0
_OPSETS = 10


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: a hundredth, once."""
    sizes = [count // 100 for count in SIZES] if quick else list(SIZES)
    rounds = 1 if quick else 7
    prepare(place, sizes)
    ours: dict[int, list[Spent]] = {cells: [] for cells in sizes}
    rivals: dict[int, list[Spent]] = {cells: [] for cells in sizes}
    for _ in range(rounds):
        for cells in sizes:
            ours[cells].append(_same_again(place, cells))
            rivals[cells].append(
                must(spend([*NINJA, "-C", f"ninja{cells}"], place), "no work to do")
            )
    closely = {cells: _closely(place, cells) for cells in sizes}
    figures = [
        *(_figure(cells, ours[cells], SIZES.get(cells)) for cells in sizes),
        *(() if quick else (_slope(sizes, ours, rivals),)),
        *(
            Figure(what=f"{cells:,} cells, all looked at anew", measured=_said([closely[cells]]))
            for cells in sizes
        ),
    ]
    about = (
        "An export of a project in which nothing changed, against ninja with a target for each "
        f"cell; medians of {rounds}, alternating. The last rows are the cost after "
        "a file was touched or with another selection."
    )
    return Section(name="idle", about=about, figures=figures)


def prepare(place: Path, sizes: Sequence[int]) -> None:
    """Create a finished project and a finished ninja build of each size."""
    for cells in sizes:
        made_project(place / f"cells{cells}", cells // _OPSETS, f"9..{8 + _OPSETS}")
        ninja_project(place / f"ninja{cells}", cells)
        must(spend([*NINJA, "-C", f"ninja{cells}"], place))
    for cells in sizes:
        _same_again(place, cells)  # it runs no cell and writes the tables
        _same_again(place, cells)  # it writes nothing else, so it can write the snapshot
        if not (place / f"cells{cells}/build/untouched.json").is_file():
            raise AssertionError("an export with nothing to do left no note of it")


def ninja_project(root: Path, targets: int) -> None:
    """Create as many targets; ten of them share a source."""
    for folder in ("in", "out"):
        (root / folder).mkdir(parents=True)
    for number in range(targets // _OPSETS):
        (root / f"in/{number}").write_text("source", encoding="utf-8")
    statements = "".join(
        f"build out/{number}: copy in/{number // _OPSETS}\n" for number in range(targets)
    )
    rule = "rule copy\n  command = cp $in $out\n"
    (root / "build.ninja").write_text(rule + statements, encoding="utf-8")


def _same_again(place: Path, cells: int) -> Spent:
    return must(spend(EXPORT, place / f"cells{cells}"), f"{cells} cells: {cells} pass")


def _closely(place: Path, cells: int) -> Spent:
    return must(spend([*EXPORT, "*"], place / f"cells{cells}"), f"{cells} cells: {cells} pass")


def _figure(cells: int, spent: Sequence[Spent], limit: float | None) -> Figure:
    said, what = _said(spent), f"{cells:,} cells, nothing to do"
    if limit is None:
        return Figure(what=what, measured=said)
    return at_most(what, median(each.wall for each in spent), limit, said, " s")


def _said(spent: Sequence[Spent]) -> str:
    wall, cpu = median(each.wall for each in spent), median(each.cpu for each in spent)
    return f"{wall:.2f} s ({cpu:.2f} s of a core)"


def _slope(
    sizes: Sequence[int], ours: dict[int, list[Spent]], rivals: dict[int, list[Spent]]
) -> Figure:
    """Return the cost of each further 1,000 cells, relative to as many targets."""
    few, many = sizes
    mine, other = (
        (median(each.wall for each in side[many]) - median(each.wall for each in side[few]))
        / (many - few)
        * 1000
        for side in (ours, rivals)
    )
    said = f"{mine / other:.1f} times ({1000 * mine:.0f} ms and {1000 * other:.0f} ms)"
    return at_most("each further 1,000 cells, against ninja", mine / other, TIMES, said, " times")
