"""Contracts of sound models with files that are changed, and their usual verdict."""

from __future__ import annotations

from exporter.manifest import ModelSpec
from tests.traps.trap import (
    TORCHSCRIPT,
    Tamper,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
)

OFF = parity("parity", "output 'y': error")


def picture(opset: int = TORCHSCRIPT, **changes: object) -> ModelSpec:
    """Return a contract of a small network for pictures."""
    return contract("files.py:Picture", opset, "x [batch, 2, 6, 6] -> y [batch, 3]", **changes)


OUTSIDE = contract(
    "files.py:Outside", signature="x [batch, 20] -> y [batch, 20]", options={"external_data": True}
)
TWO = contract(
    "files.py:Two", signature="left [batch, 4], right [batch, 4] -> a [batch, 4], b [batch, 4]"
)
CHOSEN = contract(
    "files.py:Chosen",
    signature="x [batch, 4] -> sorted [batch, 4], best int64 [batch], positive bool [batch, 4]",
)
RESHAPED = contract("files.py:Reshaped")
_COUNT = declare_input("n", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=3))
LOOPED = contract("files.py:Looped", inputs=(declare_input(), _COUNT))
ROOTED = contract("numbers.py:SomeNaN")
MASKED = contract(
    "numbers.py:Masked",
    inputs=(
        declare_input(),
        declare_input("keep", at="args[1]", dtype="bool", fill=make_fill("bernoulli")),
    ),
)
WORDS = contract(
    "files.py:Vocabulary",
    inputs=(
        declare_input(
            "ids", "batch", 5, dtype="int64", fill=make_fill("randint", low=0, high=1000)
        ),
    ),
    outputs=(declare_output("y", "batch", 5, 4),),
)


def file_trap(
    name: str, story: str, how: Tamper, verdict: Verdict = OFF, opset: int = TORCHSCRIPT
) -> Trap:
    """Return a trap with the file of `picture`."""
    return Trap(name, story, picture(opset), verdict, tamper=how)
