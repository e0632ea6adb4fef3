"""Traps: numbers at the limits of floating point, and comparisons that cannot fail.

Output: `NUMBERS`.
"""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec, Tolerance
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
    parity,
    structure,
)

_KEEP = declare_input("keep", at="args[1]", dtype="bool", fill=make_fill("bernoulli"))
_LABELS = declare_output("label", "batch", dtype="int64")
_PROBABILITY = declare_output("y", "batch")


_TABLE: dict[str, object] = {
    "inputs": (declare_input("x", 3, 4),),
    "outputs": (declare_output("y", 3, 4, 2),),
    "axes": (),
}


def _half(net: str, opset: int) -> Trap:
    return Trap(
        name=f"float16 at opset {opset}",
        story="half precision has its own rounding",
        spec=contract(
            f"numbers.py:{net}",
            opset,
            inputs=(declare_input(dtype="float16"),),
            outputs=(declare_output("y", "batch", 4, dtype="float16"),),
        ),
        verdict=SOUND,
    )


def _positions() -> ModelSpec:
    return contract(
        "outputs.py:Positions",
        DYNAMO,
        inputs=(declare_input("x", 3, "length"),),
        outputs=(
            declare_output("angles", "length", 2),
            declare_output("mask", "length", "length", dtype="bool"),
        ),
        axes=(Axis(name="length", example=5),),
    )


def _canceled(**changes: object) -> ModelSpec:
    return contract(
        "numbers.py:Canceled",
        DYNAMO,
        inputs=(declare_input("x", "batch", 4096),),
        outputs=(declare_output("y", "batch"),),
        axes=(Axis(name="batch", example=16),),
        **changes,
    )


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
        name="small column beside a large one",
        story="an error of a thousandth in scores is no error relative to pixels of 5,000",
        spec=contract("numbers.py:SmallColumn", **_TABLE),
        verdict=parity("values", "column 1 of the last axis"),
    ),
    Trap(
        name="small column inside the graph",
        story="the file computes the small column too",
        spec=contract("numbers.py:SmallColumnAlike", **_TABLE),
        verdict=SOUND,
    ),
    Trap(
        name="small row beside a large one",
        story="an error of 1e-5 in rows of size 1 is no error relative to a row of 2,000",
        spec=contract("numbers.py:SmallRow"),
        verdict=parity("axes", "of axis 0, which has the size"),
    ),
    Trap(
        name="small row inside the graph",
        story="the file computes the small rows too",
        spec=contract("numbers.py:SmallRowAlike"),
        verdict=SOUND,
    ),
    Trap(
        name="small rows that are differences of large values",
        story="PyTorch's own error in the small rows has the size of the large values",
        spec=contract("numbers.py:SmallRowDifference", outputs=(declare_output("y", "batch", 16),)),
        verdict=SOUND,
    ),
    Trap(
        name="small difference of large values",
        story="PyTorch's own error in the small column has the size of the large values",
        spec=contract("numbers.py:SmallDifference", **_TABLE),
        verdict=SOUND,
    ),
    Trap(
        name="most elements outside the tolerance",
        story="a file that is wrong in most elements would pass",
        spec=contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-12, rtol=1e-5, outside=0.9)),
        verdict=inconclusive("power", "`outside = 0.9` excludes 90% of the elements"),
    ),
    Trap(
        name="few elements outside the tolerance",
        story="a file that is wrong in most elements fails",
        spec=contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-12, rtol=1e-5, outside=0.05)),
        verdict=SOUND,
    ),
    Trap(
        name="constant output",
        story="every input gives the same output",
        spec=contract("outputs.py:Constant"),
        verdict=inconclusive("power", "inputs of another seed give the very same 'y'"),
    ),
    Trap(
        name="outputs that depend on sizes only",
        story="every size gives other positions, so that a constant would fail",
        spec=_positions(),
        verdict=SOUND,
    ),
    Trap(
        name="constant that follows a size by repetition",
        story="every size gives the same number: a constant would pass",
        spec=contract(
            "outputs.py:Constant",
            inputs=(declare_input("x", 3, "length"),),
            outputs=(declare_output("y", 3, "length"),),
            axes=(Axis(name="length", example=5),),
        ),
        verdict=inconclusive("power", "inputs of another seed give the very same 'y'"),
    ),
    Trap(
        name="positions of the example",
        story="`float(size)` freezes the length of the positions",
        spec=contract(
            "outputs.py:FixedPositions",
            inputs=(declare_input("x", 3, "length"),),
            outputs=(declare_output("y", 3, "length"),),
            axes=(Axis(name="length", example=5),),
        ),
        verdict=parity("axes", "length=11"),
    ),
    Trap(
        name="unconnected output",
        story="the model does not use its input",
        spec=contract(
            "outputs.py:Unconnected",
            inputs=(declare_input("x", 3, 4),),
            outputs=(declare_output("y", 3, 4),),
            axes=(),
        ),
        verdict=structure("signature", "inputs differ: the file has none, declared 1 (x)"),
    ),
    Trap(
        name="integers that move",
        story="a label that follows the input",
        spec=contract("outputs.py:Labels", outputs=(_LABELS,)),
        verdict=SOUND,
    ),
    Trap(
        name="integers that never move",
        story="one label for every input: a constant would pass",
        spec=contract("outputs.py:SameLabels", outputs=(_LABELS,)),
        verdict=inconclusive("power", "give the very same 'label'"),
    ),
    Trap(
        name="constant next to integers that change",
        story="the input was seen to matter, and the constant has its size",
        spec=contract(
            "outputs.py:LabelsAndTemperature",
            outputs=(_LABELS, declare_output("temperature", 1)),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="tiny outputs, fixed tolerance",
        story="outputs of 1e-9 are all within an atol of 1e-5",
        spec=contract("numbers.py:Tiny", tolerance=Tolerance(atol=1e-5)),
        verdict=inconclusive("power", "of its size (atol 1e-05"),
    ),
    Trap(
        name="tiny outputs, measured tolerance",
        story="measured, the tolerance is tiny too",
        spec=contract("numbers.py:Tiny"),
        verdict=SOUND,
    ),
    Trap(
        name="probability of an unlikely input",
        story="in a sample of equal values the probability is 1e-16, and the runtime's sigmoid 0",
        spec=contract("numbers.py:Unlikely", DYNAMO, outputs=(_PROBABILITY,)),
        verdict=SOUND,
    ),
    Trap(
        name="small probabilities dropped",
        story="the file sets all probabilities to 0 that are below a median of the example",
        spec=contract("numbers.py:UnlikelyDropped", outputs=(_PROBABILITY,)),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="tolerance as large as the output",
        story="an atol of 1 on outputs around 1",
        spec=contract("values.py:ItemKept", tolerance=Tolerance(atol=1.0)),
        verdict=inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        name="relative tolerance of 2",
        story="0 would be within it",
        spec=contract("values.py:ItemKept", tolerance=Tolerance(rtol=2.0)),
        verdict=inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        name="noise factor without limit",
        story="a billion times PyTorch's own noise",
        spec=contract("numbers.py:Exponential", tolerance=Tolerance(noise=1e9)),
        verdict=inconclusive("power", "a wrong file would pass"),
    ),
    Trap(
        name="large range",
        story="from nearly 0 to thousands in one output",
        spec=contract("numbers.py:Exponential"),
        verdict=SOUND,
    ),
    Trap(
        name="NaN on both sides",
        story="the root of negative numbers",
        spec=contract("numbers.py:SomeNaN"),
        verdict=SOUND,
    ),
    Trap(
        name="Inf on both sides",
        story="division by zero, with the sign of the numerator",
        spec=contract("numbers.py:SomeInf"),
        verdict=SOUND,
    ),
    Trap(
        name="nothing but NaN",
        story="no element can be compared",
        spec=contract("numbers.py:AllNaN"),
        verdict=inconclusive("power", "output 'y' has no number but 0"),
    ),
    Trap(
        name="NaN of a batch of 1",
        story="the deviation of one row is NaN in PyTorch",
        spec=contract("numbers.py:Deviation"),
        verdict=SOUND,
    ),
    Trap(
        name="float16 overflow",
        story="PyTorch rounds to infinity on the way, ONNX Runtime computes on in float32",
        spec=contract(
            "numbers.py:HalfOverflow",
            inputs=(declare_input(dtype="float16"),),
            outputs=(declare_output("y", "batch", 4, dtype="float16"),),
        ),
        verdict=parity("parity", "float64 has finite numbers up to"),
    ),
    _half("Half", 13),
    _half("Half", DYNAMO),
    Trap(
        name="softmax over the middle",
        story="opset 12 knows another Softmax than 13",
        spec=contract(
            "numbers.py:Softmaxed",
            12,
            inputs=(declare_input("x", "batch", 3, 4),),
            outputs=(declare_output("y", "batch", 3, 4),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="NaN through Relu",
        story="NaN in PyTorch, and in the file",
        spec=contract("numbers.py:LostNaN"),
        verdict=SOUND,
    ),
    Trap(
        name="nothing found",
        story="no element comes out, so that none can be compared",
        spec=contract(
            "numbers.py:NoneFound",
            outputs=(declare_output("y", "found"),),
            axes=(Axis(name="batch", example=3), Axis(name="found", example=None)),
        ),
        verdict=inconclusive("power", "output 'y' has no number but 0"),
    ),
    Trap(
        name="logits under a mask of -1e9",
        story="the large number is no measure of the small ones",
        spec=contract("numbers.py:Masked", inputs=(declare_input(), _KEEP)),
        verdict=SOUND,
    ),
    Trap(
        name="logits under a fixed mask of the lowest number",
        story="relative to it they hardly change, so it is not their scale",
        spec=contract("numbers.py:Causal"),
        verdict=SOUND,
    ),
    Trap(
        name="noise above 1e-3",
        story="rounding and a wrong value look the same: neither right nor wrong",
        spec=_canceled(),
        verdict=inconclusive("parity", "PyTorch's own float32 error is"),
    ),
    Trap(
        name="noise above 1e-3, declared",
        story="the manifest declares that PyTorch's error is rounding",
        spec=_canceled(tolerance=Tolerance(noise=8)),
        verdict=SOUND,
    ),
    Trap(
        name="half of a rare negative number",
        story="TorchScript cuts the quotient, and one number in 400 has it as its output",
        spec=_halved("RareHalf"),
        verdict=parity("values", "output 'y'"),
    ),
    Trap(
        name="half of a rare negative number under dynamo",
        story="dynamo rounds down",
        spec=_halved("RareHalf", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="half of a rare positive number",
        story="no negative quotient is in the output",
        spec=_halved("RarePositiveHalf"),
        verdict=SOUND,
    ),
    Trap(
        name="another function in float64",
        story="the difference is no rounding: the tolerance is then torch.testing's",
        spec=contract("numbers.py:ByDtype"),
        verdict=SOUND,
    ),
)
