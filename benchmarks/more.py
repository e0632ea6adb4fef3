"""Measure one more opset of a model next to its first one.

Input: a directory. Output: a `Section`. Both are seconds of the worker's stages in one export. The
first opset has the shared work, its conversion and its checks. The others have their conversion and
their checks. Each file runs on every sample of its contract. That inference is a figure of its own,
because the outputs of another opset prove nothing. The table also has the cost of one more opset in
the usual loop.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks.figure import Figure, Section, at_most
from benchmarks.measure import ROOT, Failed, must, spend
from benchmarks.project import matrix_project
from benchmarks.stages import by_model, inference, own_seconds, records_of, shared_seconds

MODELS = ("resnet18", "mobilenet_v3_small", "vit_tiny")
OPSETS = "18..25"
#: Share of the first opset's cost, and the share of both without inference.
LIMIT, WITHOUT_INFERENCE = 0.12, 0.06


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: one small model at two opsets."""
    models: Sequence[str] = ("squeezenet1_1",) if quick else MODELS
    matrix_project(place, models, "18..19" if quick else OPSETS)
    must(spend([sys.executable, "-m", "exporter", "export", "--jobs", "1"], place))
    rows = []
    firsts, others, ran = 0.0, 0.0, 0.0
    for model, records in by_model(records_of(place)).items():
        first = shared_seconds(records) + own_seconds(records[0])
        other = mean(own_seconds(record) for record in records[1:])
        running = mean(inference([record]) for record in records[1:])
        firsts, others, ran = firsts + first, others + other, ran + running
        said = (
            f"{other / first:.1%} ({other:.2f} s, {running:.2f} s of it inference, "
            f"and {first:.2f} s)"
        )
        rows.append(Figure(what=f"one more opset of {model}", measured=said))
    share = others / firsts
    loop = _in_the_loop(place / "loop", models)
    said = f"{share:.1%} ({others:.2f} s, {ran:.2f} s of it inference, and {firsts:.2f} s)"
    pure = (others - ran) / (firsts - ran)
    about = (
        f"{', '.join(models)} at opsets {'18..19' if quick else OPSETS} by one worker; the mean "
        "over the others against the first that is made, checks included in both."
    )
    sums = [
        at_most("one more opset, as a share of the first, of all", share, LIMIT, said, "%"),
        at_most("the same without inference", pure, WITHOUT_INFERENCE, f"{pure:.1%}", "%"),
    ]
    if quick:
        sums = [Figure(what=each.what, measured=each.measured) for each in sums]
    rival = Figure(
        what="one more opset, as a share of one more in the loop, of all",
        measured=f"{others / loop:.1%} ({others:.2f} s and {loop:.2f} s)",
    )
    return Section(name="more", about=about, figures=[*rows, *sums, rival])


def _in_the_loop(place: Path, models: Sequence[str]) -> float:
    """Return the seconds of the last of two opsets in the loop, for all models.

    Raises:
        Failed: The loop did not export one of them.
    """
    place.mkdir()
    matrix_project(place, models, "24..25")
    script = str(ROOT / "benchmarks/loop.py")
    spent = must(spend([sys.executable, script, "manifests/matrix.toml", "out"], place))
    lines = [line.split(" ") for line in spent.output.splitlines()]
    took = {line[0]: float(line[2]) for line in lines if line[1:2] == ["ok"] and len(line) == 3}
    missing = [model for model in models if f"{model}/25" not in took]
    if missing:
        raise Failed(f"the loop did not make {', '.join(missing)}:\n{spent.output[-4000:]}")
    return sum(took[f"{model}/25"] for model in models)
