"""Measure the time from saving a source to its verdict, by `--watch` and by a new command.

Input: the number of models. Output: a `Section`. Each round changes the result of one model among
them, at one opset, so its cell is exported and proved. A script with a plain `torch.onnx.export` of
this model shows what a new process cannot avoid.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, Section, at_most
from benchmarks.measure import Failed, must, spend
from benchmarks.project import made_project

EXPORT = (sys.executable, "-m", "exporter", "export")
MODELS = 100
#: An opset of dynamo.
OPSET = 18
#: Limits in seconds.
WATCH_LIMIT, COMMAND_LIMIT = 1.0, 2.5
_LINE = "return self.linear(x)"
#: The usual script: it exports the model, checks the file and compares it once.
_SCRIPT = f"""
import sys

import numpy as np
import onnx
import onnxruntime
import torch

sys.path.insert(0, "manifests")
from net0 import Net

model, x = Net().eval(), torch.randn(2, 4)
axes = ({{0: "batch"}},)
torch.onnx.export(
    model, (x,), "plain.onnx", dynamo=True, opset_version={OPSET}, dynamic_shapes=axes
)
onnx.checker.check_model("plain.onnx")
session = onnxruntime.InferenceSession("plain.onnx")
(y,) = session.run(None, {{session.get_inputs()[0].name: x.numpy()}})
np.testing.assert_allclose(y, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
"""


def measured(place: Path, *, quick: bool) -> Section:
    """Measure both; `quick`: once, among ten."""
    models, rounds = (10, 1) if quick else (MODELS, 7)
    made_project(place, models, str(OPSET))
    source = place / "manifests/net0.py"
    _edit(source, 0)
    must(spend(EXPORT, place))  # writes the pages of all models
    commands, scripts = [], []
    for number in range(1, rounds + 1):
        _edit(source, number)
        commands.append(must(spend(EXPORT, place), f"{models} cells: {models} pass"))
        scripts.append(must(spend([sys.executable, "-c", _SCRIPT], place)))
    with _watch(place) as wait_for:
        waits = []
        for number in range(rounds + 1, 2 * rounds + 1):
            _edit(source, number)
            start = time.perf_counter()
            wait_for("1 pass")
            waits.append(time.perf_counter() - start)
            wait_for("watching ")
    watch, command = median(waits), median(each.wall for each in commands)
    cpu, plain = (median(each.cpu for each in runs) for runs in (commands, scripts))
    figures = [
        _judge("save to verdict by `--watch`", watch, WATCH_LIMIT, f"{watch:.2f} s", quick),
        _judge(
            f"`exporter export` after an edit of one of {models} models",
            command,
            COMMAND_LIMIT,
            f"{command:.2f} s ({cpu:.2f} s of a core), {command / watch:.1f} times the watch",
            quick,
        ),
        Figure(
            what="seconds of a core of this command, against a script with `torch.onnx.export`",
            measured=f"{cpu / plain:.2f} times ({cpu:.2f} s and {plain:.2f} s)",
        ),
    ]
    about = (
        f"The code of one small model among {models} changes, and its cell at opset {OPSET} is "
        f"exported by dynamo and proved. Medians of {rounds} edits each."
    )
    return Section(name="watch", about=about, figures=figures)


def _judge(what: str, seconds: float, limit: float, said: str, quick: bool) -> Figure:
    return Figure(what=what, measured=said) if quick else at_most(what, seconds, limit, said, " s")


def _edit(source: Path, number: int) -> None:
    """Multiply the result of the model by another number."""
    before, _, after = source.read_text("utf-8").partition(_LINE)
    rest = after.partition("\n")[2]
    source.write_text(f"{before}{_LINE} * {number + 2}\n{rest}", "utf-8")


@contextmanager
def _watch(root: Path) -> Iterator[Callable[[str], None]]:
    """Run `exporter export --watch` on the first model.

    Yields:
        A function that waits for a line with this text.
    """
    process = subprocess.Popen(
        [*EXPORT, "--watch", "net0"], cwd=root, stdout=subprocess.PIPE, text=True
    )
    lines = iter(process.stdout.readline, "") if process.stdout else iter(())

    def wait_for(text: str) -> None:
        if not any(text in line for line in lines):
            raise Failed(f"the watch ended without '{text}'")

    try:
        wait_for("watching ")
        yield wait_for
    finally:
        process.terminate()
        process.wait()
