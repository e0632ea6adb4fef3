"""Measure the wheel, the packages that it needs, and the import of the command line.

Output: a `Section`. The extra `export` with PyTorch is not included.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from pathlib import Path
from statistics import median

from packaging.requirements import Requirement

from benchmarks.figure import Figure, Section, at_most
from benchmarks.measure import ROOT, must, spend

#: MB of the wheel: the package, its templates and the guide.
WHEEL = 1.1
#: Packages that pip installs, in addition to the wheel.
PACKAGES = 16
#: CPU seconds of `exporter --version` in addition to those of Python alone.
IMPORT = 0.1


def measured(place: Path, *, quick: bool) -> Section:
    """Measure all three; `quick`: the import once."""
    rounds = 1 if quick else 9
    python = sys.executable
    must(spend((python, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)), ROOT))
    (wheel,) = place.glob("*.whl")
    size = wheel.stat().st_size / 1e6
    names = list_needed("onnx-exporter-matrix")
    program, alone = ((python, "-m", "exporter", "--version"), (python, "-c", ""))
    spent = [[must(spend(each, ROOT)).cpu for each in (program, alone)] for _ in range(rounds)]
    start = median(one - other for one, other in spent)
    rows = (
        ("size of the wheel", size, WHEEL, f"{size:.2f} MB", " MB"),
        ("packages that it needs", len(names), PACKAGES, f"{len(names)}: {', '.join(names)}", ""),
        ("`exporter --version` over `python -c ''`", start, IMPORT, f"{start:.2f} s CPU", " s CPU"),
    )
    figures = [Figure(what=row[0], measured=row[3]) if quick else at_most(*row) for row in rows]
    about = f"The wheel of this checkout without extras; medians of {rounds} runs."
    return Section(name="package", about=about, figures=figures)


def list_needed(name: str) -> list[str]:
    """Return the packages that pip installs with a distribution, by their metadata."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for line in requires(waiting.pop()) or ():
            requirement = Requirement(line)
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            known = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if is_needed and known not in found:
                found.add(known)
                waiting.append(known)
    return sorted(found)
