"""Traps: values at the ends of the ranges of inputs, which hardly any draw contains.

Output: `ENDS`.
"""

from __future__ import annotations

from exporter.manifest import ModelSpec
from tests.traps.trap import (
    SOUND,
    Trap,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
)

_SIZES: dict[str, object] = {"axes": (), "outputs": (declare_output("y", 3, 4),)}
_SHORT = declare_input("x", 3, 4)


def _tokens(model: str) -> ModelSpec:
    ids = declare_input("ids", 3, 4, dtype="int64", fill=make_fill("randint", low=0, high=1000))
    outputs = (declare_output("y", 3, 4, dtype="int64"),)
    return contract(f"ends.py:{model}", inputs=(ids,), outputs=outputs, axes=())


def _light(model: str) -> ModelSpec:
    x = declare_input("x", 3, 4, fill=make_fill("uniform", low=0.0, high=1.0))
    return contract(f"ends.py:{model}", inputs=(x,), **_SIZES)


def _kept(model: str, probability: float = 0.5) -> ModelSpec:
    fill = make_fill("bernoulli", probability=probability)
    keep = declare_input("keep", 3, 4, at="args[1]", dtype="bool", fill=fill)
    return contract(f"ends.py:{model}", inputs=(_SHORT, keep), **_SIZES)


ENDS = (
    Trap(
        name="special token at the low end",
        story="the example has no padding token, and the trace keeps its branch",
        spec=_tokens("PadToken"),
        verdict=parity("values", "both ends of ids: output 'y'"),
    ),
    Trap(
        name="special token at the high end",
        story="the example does not have the last token, and the trace keeps its branch",
        spec=_tokens("LastToken"),
        verdict=parity("values", "both ends of ids: output 'y'"),
    ),
    Trap(
        name="special token inside the graph",
        story="`torch.where` chooses again for each input",
        spec=_tokens("PadTokenAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="exact end of a uniform range",
        story="no draw is exactly 1, and the trace keeps the branch of its example",
        spec=_light("FullLight"),
        verdict=parity("values", "both ends of x: output 'y'"),
    ),
    Trap(
        name="exact end of a uniform range inside the graph",
        story="`torch.where` chooses again for each input",
        spec=_light("FullLightAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="infinite value at the end of a range",
        story="the file and PyTorch have the same infinity",
        spec=_light("Logarithm"),
        verdict=SOUND,
    ),
    Trap(
        name="mask without False",
        story="no draw allows all elements, and the trace keeps the branch of its example",
        spec=_kept("AllKept"),
        verdict=parity("values", "highest end of keep: output 'y'"),
    ),
    Trap(
        name="mask without True",
        story="no draw excludes all elements, and the trace keeps the branch of its example",
        spec=_kept("NoneKept"),
        verdict=parity("values", "lowest end of keep: output 'y'"),
    ),
    Trap(
        name="mask without True inside the graph",
        story="`torch.where` chooses again for each input",
        spec=_kept("Kept"),
        verdict=SOUND,
    ),
    Trap(
        name="mask that must have a True",
        story="PyTorch gives NaN without any True, so that this mask proves nothing",
        spec=_kept("KeptShare", 0.9),
        verdict=SOUND,
    ),
)
