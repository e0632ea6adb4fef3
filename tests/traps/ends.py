"""Traps: values at the ends of the ranges of inputs, which hardly any draw contains."""

from __future__ import annotations

from exporter.manifest import Axis, Fill, ModelSpec
from tests.traps.trap import (
    Trap,
    contract,
    declare_input,
    declare_output,
    inconclusive,
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
        "special token at the low end",
        "the example has no padding token, and the trace keeps its branch",
        _tokens("PadToken"),
        parity("values", "special values of ids: output 'y'"),
    ),
    Trap(
        "special token at the high end",
        "the example does not have the last token, and the trace keeps its branch",
        _tokens("LastToken"),
        parity("values", "special values of ids: output 'y'"),
    ),
    Trap(
        "special token inside the graph",
        "`torch.where` chooses again for each input",
        _tokens("PadTokenAlike"),
    ),
    Trap(
        "exact end of a uniform range",
        "no draw is exactly 1",
        _light("FullLight"),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "exact end of a uniform range inside the graph",
        "`torch.where` chooses again for each input",
        _light("FullLightAlike"),
    ),
    Trap(
        "infinite value at the end of a range",
        "the file and PyTorch have the same infinity",
        _light("Logarithm"),
    ),
    Trap(
        "mask without False",
        "no draw allows all elements",
        _kept("AllKept"),
        parity("values", "highest values of x, keep: output 'y'"),
    ),
    Trap(
        "mask without True",
        "no draw excludes all elements",
        _kept("NoneKept"),
        parity("values", "lowest values of x, keep: output 'y'"),
    ),
    Trap(
        "mask without True inside the graph",
        "`torch.where` chooses again for each input",
        _kept("Kept"),
    ),
    Trap(
        "mask that must have a True",
        "PyTorch gives NaN without any True, so that this mask proves nothing",
        _kept("KeptShare", 0.9),
    ),
    Trap(
        "value of exactly 0",
        "no draw is exactly 0",
        contract("ends.py:ZeroFound"),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "value of exactly 0 inside the graph",
        "`torch.where` chooses again for each input",
        contract("ends.py:ZeroFoundAlike"),
    ),
    Trap(
        "input of zeros",
        "the model does not divide by 0, and the trace does",
        contract("ends.py:Normalized"),
        parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        "input of zeros inside the graph",
        "`torch.where` chooses again for each input",
        contract("ends.py:NormalizedAlike"),
    ),
    Trap(
        "multiple of a number of the model",
        "0.9 is two steps of 0.3 and the quotient rounds to 3, which no draw shows",
        contract("ends.py:Steps"),
        parity("values", "multiples of 0.3"),
    ),
    Trap(
        "multiple of a number in the code",
        "`x // 0.3` is another step in float64, so that neither number is right",
        contract("ends.py:Steps", init={"number": 0.3}),
        inconclusive("values", "multiples of 0.3"),
    ),
    Trap(
        "multiple of an exact number in the code",
        "PyTorch and ONNX round the quotient equally",
        contract("ends.py:Steps", init={"number": 0.75}),
    ),
    Trap(
        "multiple of a number of the model that rounds",
        "PyTorch and ONNX round the quotient equally",
        contract("ends.py:Steps", init={"wrong": False}),
    ),
    Trap(
        "number of the model that a token equals",
        "no draw of 1,000 is the token",
        _tokens("Token"),
        parity("values", "multiples of 777.0: output 'y'"),
    ),
    Trap(
        "equal rows of two inputs",
        "rows of zeros are equal, too, but the branch is for other numbers",
        contract("ends.py:EqualRows", signature="x [batch, 4], z [batch, 4] -> y [batch, 4]"),
        parity("values", "rising values of x, z: output 'y'"),
    ),
    Trap(
        "equal rows of two inputs inside the graph",
        "`torch.where` chooses again for each input",
        contract(
            "ends.py:EqualRows",
            signature="x [batch, 4], z [batch, 4] -> y [batch, 4]",
            init={"wrong": False},
        ),
    ),
    *(
        Trap(
            name,
            reason,
            contract(
                "ends.py:Distances",
                signature="x [batch, 8], z [6, 8] -> y [batch, 6]",
                init=init,
            ),
            *verdict,
        )
        for name, reason, init, *verdict in (
            (
                "distance of equal rows by products",
                "sums of squares and their products are rounded differently",
                {},
                parity("values", "rising values of x, z: output 'y'"),
            ),
            (
                "distance of equal rows by products without a limit",
                "a negative square has no root",
                {"limit": False},
                parity("values", "rising values of x, z: output 'y'"),
            ),
            (
                "distance of equal rows by differences",
                "each difference is 0",
                {"wrong": False},
            ),
            (
                "distance of equal rows by products in PyTorch",
                "PyTorch with other rounding has other distances, too",
                {"products": True},
            ),
        )
    ),
    Trap(
        "input without negative numbers",
        "some number of each draw is negative, and the trace keeps that branch",
        contract("ends.py:OnlyPositive"),
        parity("values", "rising values of x: output 'y'"),
    ),
    Trap(
        "input without negative numbers inside the graph",
        "`torch.where` chooses again for each input",
        contract("ends.py:OnlyPositiveAlike"),
    ),
    Trap(
        "batch without padding",
        "the batch of the example has padding, and the trace keeps that branch",
        _padded("NoPadding"),
        parity("values", "special values of x, mask: output 'y'"),
    ),
    Trap(
        "batch without padding inside the graph",
        "`torch.where` chooses again for each input",
        _padded("NoPaddingAlike"),
    ),
    Trap(
        "equal inputs, of which rounding selects",
        "PyTorch in float64 selects others, so that equal inputs prove nothing",
        contract("ends.py:BestRows", signature="x [batch, 6, 4] -> y [batch, 2, 4]"),
    ),
    Trap(
        "halves rounded up",
        "no draw is exactly 0.5, which PyTorch rounds to 0",
        contract("ends.py:HalfUp"),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "halves rounded to even",
        "PyTorch and ONNX round halves to even numbers",
        contract("ends.py:HalfToEven"),
    ),
    Trap(
        "row without positive numbers",
        "one of 65,000 rows has no positive number, and the file has no negative result",
        _best(),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "row without positive numbers inside the graph",
        "the file returns the largest value, which is negative",
        _best(bounded=False),
    ),
)
