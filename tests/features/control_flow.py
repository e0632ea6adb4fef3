"""Loops and branches over values."""

from __future__ import annotations

from exporter.record import Stage
from tests.features.feature import SOUND, Feature, Referred, Section, Standing, parity, refused

_LOOP = """
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "n", shape = [], dtype = "int64", fill = { value = 5 } },
]
cases = [{ name = "none", values = { n = 0 } }, { name = "nine", values = { n = 9 } }]
"""

SECTION = Section(
    name="Control flow",
    text="A trace keeps the turns and branches of its example, a script keeps loops and branches.",
    rows=(
        Feature(
            name="loop over an input, scripted",
            api="torch.jit.script",
            torch="1.2+",
            model="control_flow.py:Loop",
            lines=f'exporter = "torchscript"\ncapture = "script"\n{_LOOP}',
            rest="opsets = [9, 13]",
            standing=Standing.TORCHSCRIPT,
            holds={"the file has a Loop": lambda proof: "Loop" in proof.operators(13)},
        ),
        Feature(
            name="loop over an input, traced",
            api="export(model, args)",
            torch="1.2+",
            model="control_flow.py:Loop",
            lines=_LOOP,
            standing=Standing.CAUGHT,
            verdicts={
                "<18": parity("cases", "none: output 'y'"),
                ">=18": refused(Stage.CAPTURE, "data-dependent expression"),
            },
        ),
        Referred(
            name="branch on a value, traced",
            api="export(model, args)",
            torch="1.2+",
            traps=("branch on a sum", "branch on a value under dynamo"),
        ),
    ),
)

__all__ = ["SECTION", "SOUND"]
