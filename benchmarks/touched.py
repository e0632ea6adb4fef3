"""Measure an export after an edit of one source among 100 models.

Input: the number of models. Output: a `Section`. It is compared with a project of that one model,
so the difference is the cost of the other models. The export after it has nothing to do, and is
compared with a further one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section, at_most
from benchmarks.measure import Failed, Spent, must, spend
from benchmarks.project import made_project

EXPORT = (sys.executable, "-m", "exporter", "export", "--explain")
MODELS = 100
#: Limit in seconds for the other models.
LIMIT = 0.5
#: Limit for the export after it, relative to the one after that.
AGAIN = 1.5
#: For TorchScript, because it exports small models quickly.
OPSETS = range(9, 17)


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: once, among ten."""
    models, rounds = (10, 1) if quick else (MODELS, 5)
    opsets = f"{OPSETS[0]}..{OPSETS[-1]}"
    made_project(place / "all", models, opsets)
    made_project(place / "alone", 1, opsets)
    ours: list[Spent] = []
    alone: list[Spent] = []
    seconds: list[Spent] = []
    thirds: list[Spent] = []
    for number in range(rounds + 1):
        spent = [_touched(place / name, number) for name in ("all", "alone")]
        if number:  # the first writes the pages of all models
            ours.append(spent[0])
            alone.append(spent[1])
            seconds.append(must(spend(EXPORT, place / "all")))
            thirds.append(must(spend(EXPORT, place / "all")))
    more = median(one.wall - other.wall for one, other in zip(ours, alone, strict=True))
    core = median(one.cpu - other.cpu for one, other in zip(ours, alone, strict=True))
    whole, least = (median(each.wall for each in side) for side in (ours, alone))
    said = f"{more:.2f} s ({core:.2f} s of a core): {whole:.2f} s against {least:.2f} s"
    what = f"cost of {models - 1} models that did not change"
    figure = Figure(what=what, measured=said) if quick else at_most(what, more, LIMIT, said, " s")
    second, third = (median(each.cpu for each in side) for side in (seconds, thirds))
    said = f"{second / third:.2f} times ({second:.2f} and {third:.2f} s of a core)"
    what = "the second export, against the third"
    ratio = second / third
    again = (
        Figure(what=what, measured=said) if quick else at_most(what, ratio, AGAIN, said, " times")
    )
    about = (
        f"A line is added to the source of one model among {models} of {len(OPSETS)} cells "
        f"each, and only its cells run. Compared with a project of that model alone; medians of "
        f"{rounds} pairs."
    )
    return Section(name="touched", about=about, figures=[figure, again])


def _touched(root: Path, number: int) -> Spent:
    """Edit the source of the first model and export.

    Raises:
        Failed: Other cells ran, or one of its own did not.
    """
    with (root / "manifests/net0.py").open("a", encoding="utf-8") as source:
        source.write(f"edit = {number}\n")
    spent = must(spend(EXPORT, root))
    ran = [line.split(" ")[0] for line in spent.output.splitlines() if " runs: " in line]
    if ran != [f"net0/{OPSETS[0]}..{OPSETS[-1]}/cpu"]:
        raise Failed(f"these cells ran: {ran}")
    return spent
