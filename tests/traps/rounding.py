"""Traps: rounding that differs between samples, and faults that are no rounding.

Output: `ROUNDING`.
"""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    contract,
    declare_input,
    declare_output,
    failed,
    make_fill,
    parity,
)

_COUNTS = declare_input("x", "batch", 4, dtype="int64", fill=make_fill("randint", low=0, high=9))


def _canceled(**init: object) -> ModelSpec:
    axes = (Axis(name="batch", example=16),)
    return contract("rounding.py:CanceledAtOne", axes=axes, init=init)


def _image(opset: int, **init: object) -> ModelSpec:
    return contract(
        "rounding.py:EqualImage",
        opset,
        inputs=(declare_input("x", "batch", 3, 32, 32),),
        outputs=(declare_output("y", "batch", 4, 32, 32),),
        init=init,
    )


def _direction(**init: object) -> ModelSpec:
    return contract(
        "rounding.py:Direction",
        inputs=(declare_input("x", "batch", 5, 5),),
        outputs=(declare_output("y", "batch", 4, 4),),
        init=init,
    )


def _waves(units: int) -> ModelSpec:
    return contract(
        "rounding.py:Waves",
        inputs=(declare_input("x", "batch", 1, fill=make_fill("uniform", low=0.0, high=1.0)),),
        outputs=(declare_output("y", "batch", 16),),
        init={"units": units},
    )


def _counts(**init: object) -> ModelSpec:
    return contract(
        "rounding.py:HalfOfCounts",
        inputs=(_COUNTS,),
        outputs=(declare_output("y", "batch"),),
        axes=(Axis(name="batch", example=40),),
        init=init,
    )


def _pair(name: str, *names: str, opset: int = TORCHSCRIPT, **init: object) -> ModelSpec:
    outputs = tuple(declare_output(each, "batch", 4) for each in names)
    return contract(f"rounding.py:{name}", opset, outputs=outputs, init=init)


ROUNDING = (
    Trap(
        name="float16 weights beside a size at which rows cancel",
        story="rounding is a large part of the small rows of a batch of 1, and of no others",
        spec=_canceled(half=True),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="size at which rows cancel",
        story="each size has its own rounding",
        spec=_canceled(),
        verdict=SOUND,
    ),
    Trap(
        name="group normalization of equal pixels",
        story="their rounding is divided by the root of 1e-5, in PyTorch as in the file",
        spec=_image(TORCHSCRIPT),
        verdict=SOUND,
    ),
    Trap(
        name="group normalization of equal pixels at opset 23",
        story="the same with the operator of ONNX",
        spec=_image(23),
        verdict=SOUND,
    ),
    Trap(
        name="instance normalization of equal pixels",
        story="the same for each channel",
        spec=_image(DYNAMO, kind="instance"),
        verdict=SOUND,
    ),
    Trap(
        name="normalization that adds 2 % to equal pixels",
        story="2 % of the usual values is more than the rounding of equal pixels",
        spec=_image(TORCHSCRIPT, wrong=True),
        verdict=parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        name="summand of 1e-10 dropped",
        story="without it, an image without gradients gives NaN",
        spec=_direction(wrong=True),
        verdict=parity("values", "equal values of x: output 'y': NaN"),
    ),
    Trap(
        name="summand of 1e-10",
        story="the file has it, too",
        spec=_direction(),
        verdict=SOUND,
    ),
    Trap(
        name="sine of angles in the thousands",
        story="the frequencies differ by some units in the last place",
        spec=_waves(4),
        verdict=SOUND,
    ),
    Trap(
        name="sine of other angles in the thousands",
        story="the frequencies differ by a hundred units in the last place",
        spec=_waves(100),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="halves rounded up beside a quantized value",
        story="the quantized value changes no output, so it is no excuse",
        spec=contract("rounding.py:HalfUpBesideQuantized"),
        verdict=parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        name="halves rounded to even beside a quantized value",
        story="PyTorch and ONNX round halves to even numbers",
        spec=contract("rounding.py:HalfUpBesideQuantized", init={"wrong": False}),
        verdict=SOUND,
    ),
    Trap(
        name="halves of counts rounded up",
        story="sums of integers are exact, so no rounding explains the other half",
        spec=_counts(),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="halves of counts rounded to even",
        story="PyTorch and ONNX round halves to even numbers",
        spec=_counts(wrong=False),
        verdict=SOUND,
    ),
    Trap(
        name="branch beside an undefined output",
        story="zeros give NaN in one output, and another branch in the other",
        spec=_pair("UndefinedBesideFixed", "share", "y"),
        verdict=parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        name="branch in the graph beside an undefined output",
        story="`torch.where` chooses again for each input",
        spec=_pair("UndefinedBesideFixed", "share", "y", wrong=False),
        verdict=SOUND,
    ),
    Trap(
        name="output class without keys",
        story="PyTorch flattens the outputs of diffusers without their names",
        spec=_pair("WithoutKeys", "sample", "noise", opset=DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="output class without keys in another order",
        story="the file would have exchanged names",
        spec=_pair("WithoutKeys", "noise", "sample", opset=DYNAMO),
        verdict=failed(Stage.SOURCE, "the entry declares them in another order"),
    ),
)
