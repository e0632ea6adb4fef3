"""Measure plan, report and gate, and check that their time grows linearly with the cells.

Input: the number of cells. Output: a `Section`. Each is compared with itself at a tenth of the
cells.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section
from benchmarks.measure import Spent, must, spend
from benchmarks.project import made_project
from exporter.core.text import format_bytes

EXPORTER = (sys.executable, "-m", "exporter")
SIZES = (200, 2_000, 20_000)
#: Limit in seconds at the largest size.
LIMIT = 6.0
#: Limit in bytes of memory.
PEAK = 500_000_000
#: Limit for the cost of a cell among many, relative to one among few.
GROWTH = 1.5
#: A smaller difference between two runs is noise.
_NOISE = 0.05
_OPSETS = 10
COMMANDS = {
    "plan": ("plan",),
    "report, every page anew": ("report",),
    "gate": ("gate",),
    "gate --against": ("gate", "--against", "HEAD"),
}


def measured(place: Path, *, quick: bool) -> Section:
    """Measure all steps; `quick`: a hundredth, once."""
    sizes = [cells // 10 for cells in SIZES[:2]] if quick else SIZES
    rounds = 1 if quick else 5
    for cells in sizes:
        prepare(place / f"cells{cells}", cells)
    spent: dict[str, dict[int, list[Spent]]] = {name: {} for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            for cells in sizes:
                root = place / f"cells{cells}"
                spent[name].setdefault(cells, []).append(_run(root, name, command))
    about = (
        f"Each command over {', '.join(f'{cells:,}' for cells in sizes)} cells; medians of "
        f"{rounds}, alternating. Growth is the cost of a cell from the second size to the third, "
        "divided by its cost from the first to the second, by the least CPU seconds."
    )
    figures = [_figure(name, spent[name], aimed=not quick) for name in COMMANDS]
    return Section(name="steps", about=about, figures=figures)


def prepare(root: Path, cells: int) -> None:
    """Create a project with results, tables and a baseline, all committed."""
    made_project(root, cells // _OPSETS, f"9..{8 + _OPSETS}")
    must(spend([*EXPORTER, "export"], root), f"{cells} cells: {cells} pass")
    must(spend([*EXPORTER, "baseline"], root))
    (root / ".gitignore").write_text("build/\n", encoding="utf-8")
    git = shutil.which("git") or "git"
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "accepted")):
        subprocess.run([git, *words], cwd=root, check=True)


def _run(root: Path, name: str, command: tuple[str, ...]) -> Spent:
    if name.startswith("report"):
        (root / "build/reports.json").unlink(missing_ok=True)
    return must(spend([*EXPORTER, *command], root))


def _figure(name: str, spent: dict[int, list[Spent]], *, aimed: bool) -> Figure:
    wall = {cells: median(each.wall for each in runs) for cells, runs in spent.items()}
    cpu = {cells: median(each.cpu for each in runs) for cells, runs in spent.items()}
    said = ", ".join(f"{wall[cells]:.2f} s ({cpu[cells]:.2f} of a core)" for cells in wall)
    peak = max(each.peak for runs in spent.values() for each in runs)
    said += f", at most {format_bytes(peak)}"
    if not aimed:
        return Figure(what=name, measured=said)
    few, some, many = SIZES
    # The least CPU seconds: other load of the machine is no growth, and it is as large as the cost
    # of the first 1,800 cells.
    least = {cells: min(each.cpu for each in runs) for cells, runs in spent.items()}
    first = max(least[some] - least[few], _NOISE) / (some - few)
    growth = (least[many] - least[some]) / (many - some) / first
    return Figure(
        what=name,
        measured=f"{said}; growth {growth:.2f}",
        aim=f"{many:,} cells in {LIMIT:g} s and {format_bytes(PEAK)}, growth at most {GROWTH:g}",
        met=wall[many] <= LIMIT and peak <= PEAK and growth <= GROWTH,
    )
