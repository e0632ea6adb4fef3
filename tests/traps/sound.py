"""Contracts of sound models with files that are changed, and their usual verdict.

Output: contracts, `file_trap` and `OFF`.
"""

from __future__ import annotations

from exporter.manifest import ModelSpec
from tests.traps.trap import (
    TORCHSCRIPT,
    Tamper,
    Trap,
    Verdict,
    contract,
    fill,
    given,
    parity,
    put_out,
)

OFF = parity("parity", "output 'y': error")


def picture(opset: int = TORCHSCRIPT, **changes: object) -> ModelSpec:
    """A small network for pictures."""
    return contract(
        "files.py:Picture",
        opset,
        inputs=(given("x", "batch", 2, 6, 6),),
        outputs=(put_out("y", "batch", 3),),
        **changes,
    )


OUTSIDE = contract(
    "files.py:Outside",
    inputs=(given("x", "batch", 20),),
    outputs=(put_out("y", "batch", 20),),
    options={"external_data": True},
)
TWO = contract(
    "files.py:Two",
    inputs=(given("left"), given("right", at="args[1]")),
    outputs=(put_out("a", "batch", 4), put_out("b", "batch", 4)),
)
CHOSEN = contract(
    "files.py:Chosen",
    outputs=(
        put_out("sorted", "batch", 4),
        put_out("best", "batch", dtype="int64"),
        put_out("positive", "batch", 4, dtype="bool"),
    ),
)
RESHAPED = contract("files.py:Reshaped")
_COUNT = given("n", at="args[1]", shape=(), dtype="int64", fill=fill("value", value=3))
LOOPED = contract("files.py:Looped", inputs=(given(), _COUNT))
ROOTED = contract("numbers.py:SomeNaN")
MASKED = contract(
    "numbers.py:Masked",
    inputs=(given(), given("keep", at="args[1]", dtype="bool", fill=fill("bernoulli"))),
)
WORDS = contract(
    "files.py:Vocabulary",
    inputs=(given("ids", "batch", 5, dtype="int64", fill=fill("randint", low=0, high=1000)),),
    outputs=(put_out("y", "batch", 5, 4),),
)


def file_trap(
    name: str, story: str, how: Tamper, verdict: Verdict = OFF, opset: int = TORCHSCRIPT
) -> Trap:
    """A trap made of the file of `picture`."""
    return Trap(name=name, story=story, tamper=how, verdict=verdict, spec=picture(opset))
