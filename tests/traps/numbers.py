"""Traps: numbers at the limits of floating point, and comparisons that cannot fail."""

from __future__ import annotations

from exporter.manifest import ModelSpec, Tolerance
from tests.traps.trap import (
    DYNAMO,
    TORCHSCRIPT,
    Trap,
    contract,
    declare,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
    parity,
    structure,
)

_KEEP = declare_input("keep", at="args[1]", dtype="bool", fill=make_fill("bernoulli"))
_LABELS = declare_output("label", "batch", dtype="int64")


_TABLE: dict[str, object] = declare("x [3, 4] -> y [3, 4, 2]")


def _half(net: str, opset: int) -> Trap:
    return Trap(
        f"float16 at opset {opset}",
        "half precision has its own rounding",
        contract(f"numbers.py:{net}", opset, "x float16 [batch, 4] -> y float16 [batch, 4]"),
    )


def _positions() -> ModelSpec:
    return contract(
        "outputs.py:Positions",
        DYNAMO,
        "x [3, length=5] -> angles [length, 2], mask bool [length, length]",
    )


def _canceled(**changes: object) -> ModelSpec:
    return contract("numbers.py:Canceled", DYNAMO, "x [batch=16, 4096] -> y [batch]", **changes)


def _halved(source: str, opset: int = TORCHSCRIPT) -> ModelSpec:
    fill = make_fill("randint", low=-200, high=200)
    return contract(
        f"numbers.py:{source}",
        opset,
        inputs=(declare_input("x", "batch", 4, dtype="int64", fill=fill),),
        outputs=(declare_output("y", "batch", 4, dtype="int64"),),
    )


NUMBERS = (
    Trap(
        "small column beside a large one",
        "an error of a thousandth in scores is no error relative to pixels of 5,000",
        contract("numbers.py:SmallColumn", **_TABLE),
        parity("values", "column 1 of the last axis"),
    ),
    Trap(
        "small column inside the graph",
        "the file computes the small column too",
        contract("numbers.py:SmallColumnAlike", **_TABLE),
    ),
    Trap(
        "small row beside a large one",
        "an error of 1e-5 in rows of size 1 is no error relative to a row of 2,000",
        contract("numbers.py:SmallRow"),
        parity("axes", "of axis 0, which has the size"),
    ),
    Trap(
        "small row inside the graph",
        "the file computes the small rows too",
        contract("numbers.py:SmallRowAlike"),
    ),
    Trap(
        "small rows that are differences of large values",
        "PyTorch's own error in the small rows has the size of the large values",
        contract("numbers.py:SmallRowDifference", signature="x [batch, 4] -> y [batch, 16]"),
    ),
    Trap(
        "small difference of large values",
        "PyTorch's own error in the small column has the size of the large values",
        contract("numbers.py:SmallDifference", **_TABLE),
    ),
    Trap(
        "most elements outside the tolerance",
        "a file that is wrong in most elements would pass",
        contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-12, rtol=1e-5, outside=0.9)),
        inconclusive("power", "`outside = 0.9` excludes 90% of the elements"),
    ),
    Trap(
        "few elements outside the tolerance",
        "a file that is wrong in most elements fails",
        contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-12, rtol=1e-5, outside=0.05)),
    ),
    Trap(
        "constant output",
        "every input gives the same output",
        contract("outputs.py:Constant"),
        inconclusive("power", "inputs of another seed give the very same 'y'"),
    ),
    Trap(
        "outputs that depend on sizes only",
        "every size gives other positions, so that a constant would fail",
        _positions(),
    ),
    Trap(
        "constant that follows a size by repetition",
        "every size gives the same number: a constant would pass",
        contract("outputs.py:Constant", signature="x [3, length=5] -> y [3, length]"),
        inconclusive("power", "inputs of another seed give the very same 'y'"),
    ),
    Trap(
        "positions of the example",
        "`float(size)` freezes the length of the positions",
        contract("outputs.py:FixedPositions", signature="x [3, length=5] -> y [3, length]"),
        parity("axes", "length=11"),
    ),
    Trap(
        "unconnected output",
        "the model does not use its input",
        contract("outputs.py:Unconnected", signature="x [3, 4] -> y [3, 4]"),
        structure("signature", "the file has none, declared 1 (x)"),
    ),
    Trap(
        "integers that move",
        "a label that follows the input",
        contract("outputs.py:Labels", signature="x [batch, 4] -> label int64 [batch]"),
    ),
    Trap(
        "integers that never move",
        "one label for every input: a constant would pass",
        contract("outputs.py:SameLabels", signature="x [batch, 4] -> label int64 [batch]"),
        inconclusive("power", "give the very same 'label'"),
    ),
    Trap(
        "constant next to integers that change",
        "the input was seen to matter, and the constant has its size",
        contract(
            "outputs.py:LabelsAndTemperature",
            signature="x [batch, 4] -> label int64 [batch], temperature [1]",
        ),
    ),
    Trap(
        "tiny outputs, fixed tolerance",
        "outputs of 1e-9 are all within an atol of 1e-5",
        contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-5)),
        inconclusive("power", "of its size (atol 1e-05"),
    ),
    Trap(
        "tiny outputs, measured tolerance",
        "measured, the tolerance is tiny too",
        contract("numbers.py:Tiny"),
    ),
    Trap(
        "probability of an unlikely input",
        "in a sample of equal values the probability is 1e-16, and the runtime's sigmoid 0",
        contract("numbers.py:Unlikely", DYNAMO, "x [batch, 4] -> y [batch]"),
    ),
    Trap(
        "small probabilities dropped",
        "the file sets all probabilities to 0 that are below a median of the example",
        contract("numbers.py:UnlikelyDropped", signature="x [batch, 4] -> y [batch]"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "tolerance as large as the output",
        "an atol of 1 on outputs around 1",
        contract("values.py:ItemKept", tolerance=Tolerance(atol=1.0)),
        inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        "relative tolerance of 2",
        "0 would be within it",
        contract("values.py:ItemKept", tolerance=Tolerance(rtol=2.0)),
        inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        "noise factor without limit",
        "a billion times PyTorch's own noise",
        contract("numbers.py:Exponential", tolerance=Tolerance(noise=1e9)),
        inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        "large range",
        "from nearly 0 to thousands in one output",
        contract("numbers.py:Exponential"),
    ),
    Trap("NaN on both sides", "the root of negative numbers", contract("numbers.py:SomeNaN")),
    Trap(
        "Inf on both sides",
        "division by zero, with the sign of the numerator",
        contract("numbers.py:SomeInf"),
    ),
    Trap(
        "nothing but NaN",
        "no element can be compared",
        contract("numbers.py:AllNaN"),
        inconclusive("power", "output 'y' has no number but 0"),
    ),
    Trap(
        "NaN of a batch of 1",
        "the deviation of one row is NaN in PyTorch",
        contract("numbers.py:Deviation"),
    ),
    Trap(
        "float16 overflow",
        "PyTorch rounds to infinity on the way, ONNX Runtime computes on in float32",
        contract(
            "numbers.py:HalfOverflow", signature="x float16 [batch, 4] -> y float16 [batch, 4]"
        ),
        parity("parity", "float64 has finite numbers up to"),
    ),
    _half("Half", 13),
    _half("Half", DYNAMO),
    Trap(
        "softmax over the middle",
        "opset 12 knows another Softmax than 13",
        contract("numbers.py:Softmaxed", 12, "x [batch, 3, 4] -> y [batch, 3, 4]"),
    ),
    Trap("NaN through Relu", "NaN in PyTorch, and in the file", contract("numbers.py:LostNaN")),
    Trap(
        "nothing found",
        "no element comes out, so that none can be compared",
        contract("numbers.py:NoneFound", signature="x [batch, 4] -> y [found]"),
        inconclusive("power", "output 'y' has no number but 0"),
    ),
    Trap(
        "logits under a mask of -1e9",
        "the large number is no measure of the small ones",
        contract("numbers.py:Masked", inputs=(declare_input(), _KEEP)),
    ),
    Trap(
        "logits under a fixed mask of the lowest number",
        "relative to it they hardly change, so it is not their scale",
        contract("numbers.py:Causal"),
    ),
    Trap(
        "noise above 1e-3",
        "rounding and a wrong value look the same: neither right nor wrong",
        _canceled(),
        inconclusive("parity", "PyTorch's own float32 error is"),
    ),
    Trap(
        "noise above 1e-3, declared",
        "the manifest declares that PyTorch's error is rounding",
        _canceled(tolerance=Tolerance(noise=8)),
    ),
    Trap(
        "half of a rare negative number",
        "TorchScript cuts the quotient, and one number in 400 has it as its output",
        _halved("RareHalf"),
        parity("values", "output 'y'"),
    ),
    Trap(
        "half of a rare negative number under dynamo",
        "dynamo rounds down",
        _halved("RareHalf", DYNAMO),
    ),
    Trap(
        "half of a rare positive number",
        "no negative quotient is in the output",
        _halved("RarePositiveHalf"),
    ),
    Trap(
        "branch behind a scale of 0",
        "TorchScript cuts the quotient, which the initial scale hides in each output",
        contract("numbers.py:LayerScale"),
        parity("parity", "with other values of gamma, which hide it in this file: output 'y'"),
    ),
    Trap(
        "sound branch behind a scale of 0",
        "with another scale the file agrees, too",
        contract("numbers.py:LayerScale", init={"is_sound": True}),
    ),
    Trap(
        "small probabilities without float64",
        "the error of a runtime's sigmoid is rounding, which other rounding in PyTorch shows",
        contract("numbers.py:FixedDtype", signature="x [batch=3, 4] -> y [batch, 64]"),
    ),
    Trap(
        "small wrong probabilities without float64",
        "a number of the example in the file is no rounding",
        contract(
            "numbers.py:FixedDtype",
            signature="x [batch=3, 4] -> y [batch, 64]",
            init={"share": 1e-5},
        ),
        parity("axes", "output 'y'"),
    ),
    Trap(
        "another function in float64",
        "the difference is no rounding: the tolerance is then torch.testing's",
        contract("numbers.py:ByDtype"),
    ),
)
