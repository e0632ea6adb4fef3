"""Traps: values at the ends of the ranges of inputs, which hardly any draw contains.

Output: `ENDS`.
"""

from __future__ import annotations

from exporter.manifest import Axis, Fill, ModelSpec
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


def _padded(model: str) -> ModelSpec:
    x = declare_input("x", "batch", "length", 4)
    fill = Fill(kind="mask", side="right")
    mask = declare_input("mask", "batch", "length", at="args[1]", dtype="int64", fill=fill)
    outputs = (declare_output("y", "batch", "length", 4),)
    axes = (Axis(name="batch", example=3, min=2), Axis(name="length", example=5, min=2))
    return contract(f"ends.py:{model}", inputs=(x, mask), outputs=outputs, axes=axes)


def _best(**changes: object) -> ModelSpec:
    inputs = (declare_input("x", "batch", 16),)
    outputs = (declare_output("y", "batch"),)
    return contract("ends.py:BestInRow", inputs=inputs, outputs=outputs, init=changes)


ENDS = (
    Trap(
        name="special token at the low end",
        story="the example has no padding token, and the trace keeps its branch",
        spec=_tokens("PadToken"),
        verdict=parity("values", "special values of ids: output 'y'"),
    ),
    Trap(
        name="special token at the high end",
        story="the example does not have the last token, and the trace keeps its branch",
        spec=_tokens("LastToken"),
        verdict=parity("values", "special values of ids: output 'y'"),
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
        verdict=parity("values", "special values of x: output 'y'"),
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
        verdict=parity("values", "highest values of x, keep: output 'y'"),
    ),
    Trap(
        name="mask without True",
        story="no draw excludes all elements, and the trace keeps the branch of its example",
        spec=_kept("NoneKept"),
        verdict=parity("values", "lowest values of x, keep: output 'y'"),
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
    Trap(
        name="value of exactly 0",
        story="no draw is exactly 0, and the trace keeps the branch of its example",
        spec=contract("ends.py:ZeroFound"),
        verdict=parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        name="value of exactly 0 inside the graph",
        story="`torch.where` chooses again for each input",
        spec=contract("ends.py:ZeroFoundAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="input of zeros",
        story="the model does not divide by 0, and the trace does",
        spec=contract("ends.py:Normalized"),
        verdict=parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        name="input of zeros inside the graph",
        story="`torch.where` chooses again for each input",
        spec=contract("ends.py:NormalizedAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="input without negative numbers",
        story="some number of each draw is negative, and the trace keeps that branch",
        spec=contract("ends.py:OnlyPositive"),
        verdict=parity("values", "rising values of x: output 'y'"),
    ),
    Trap(
        name="input without negative numbers inside the graph",
        story="`torch.where` chooses again for each input",
        spec=contract("ends.py:OnlyPositiveAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="batch without padding",
        story="the batch of the example has padding, and the trace keeps that branch",
        spec=_padded("NoPadding"),
        verdict=parity("values", "special values of x, mask: output 'y'"),
    ),
    Trap(
        name="batch without padding inside the graph",
        story="`torch.where` chooses again for each input",
        spec=_padded("NoPaddingAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="equal inputs, of which rounding selects",
        story="PyTorch in float64 selects others, so that equal inputs prove nothing",
        spec=contract(
            "ends.py:BestRows",
            inputs=(declare_input("x", "batch", 6, 4),),
            outputs=(declare_output("y", "batch", 2, 4),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="halves rounded up",
        story="no draw is exactly 0.5, which PyTorch rounds to 0",
        spec=contract("ends.py:HalfUp"),
        verdict=parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        name="halves rounded to even",
        story="PyTorch and ONNX round halves to even numbers",
        spec=contract("ends.py:HalfToEven"),
        verdict=SOUND,
    ),
    Trap(
        name="row without positive numbers",
        story="one of 65,000 rows has no positive number, and the file has no negative result",
        spec=_best(),
        verdict=parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        name="row without positive numbers inside the graph",
        story="the file returns the largest value, which is negative",
        spec=_best(bounded=False),
        verdict=SOUND,
    ),
)
