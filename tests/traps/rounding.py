"""Traps: rounding that differs between samples, and faults that are no rounding."""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec, Tolerance
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
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
        "rounding.py:EqualImage", opset, "x [batch, 3, 32, 32] -> y [batch, 4, 32, 32]", init=init
    )


def _many_elements(**changes: object) -> ModelSpec:
    return contract(
        "rounding.py:ManyElements", 21, "x [1, 8, 112, 112] -> y [1, 8, 112, 112]", **changes
    )


def _direction(**init: object) -> ModelSpec:
    return contract(
        "rounding.py:Direction", signature="x [batch, 5, 5] -> y [batch, 4, 4]", init=init
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
        "float16 weights beside a size at which rows cancel",
        "rounding is a large part of the small rows of a batch of 1, and of no others",
        _canceled(half=True),
        parity("parity", "output 'y': error"),
    ),
    Trap("size at which rows cancel", "each size has its own rounding", _canceled()),
    Trap(
        "group normalization of equal pixels",
        "their rounding is divided by the root of 1e-5, in PyTorch as in the file",
        _image(TORCHSCRIPT),
    ),
    Trap(
        "group normalization of equal pixels at opset 23",
        "the same with the operator of ONNX",
        _image(23),
    ),
    Trap(
        "instance normalization of equal pixels",
        "the same for each channel",
        _image(DYNAMO, kind="instance"),
    ),
    Trap(
        "normalization that adds 2 % to equal pixels",
        "2 % of the usual values is more than the rounding of equal pixels",
        _image(TORCHSCRIPT, wrong=True),
        parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        "summand of 1e-10 dropped",
        "without it, an image without gradients gives NaN",
        _direction(wrong=True),
        parity("values", "equal values of x: output 'y': NaN"),
    ),
    Trap("summand of 1e-10", "the file has it, too", _direction()),
    Trap(
        "sine of angles in the thousands",
        "the frequencies differ by some units in the last place",
        _waves(4),
    ),
    Trap(
        "sine of other angles in the thousands",
        "the frequencies differ by a hundred units in the last place",
        _waves(100),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "halves rounded up beside a quantized value",
        "the quantized value changes no output, so it is no excuse",
        contract("rounding.py:HalfUpBesideQuantized"),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "halves rounded to even beside a quantized value",
        "PyTorch and ONNX round halves to even numbers",
        contract("rounding.py:HalfUpBesideQuantized", init={"wrong": False}),
    ),
    Trap(
        "halves of counts rounded up",
        "sums of integers are exact, so no rounding explains the other half",
        _counts(),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "halves of counts rounded to even",
        "PyTorch and ONNX round halves to even numbers",
        _counts(wrong=False),
    ),
    Trap(
        "normalization of many elements",
        "a sum from left to right has a larger error than PyTorch's, above all of equal values",
        _many_elements(),
    ),
    Trap(
        "normalization of many elements with a tolerance",
        "the tolerance is for the declared values, and equal values have a larger noise",
        _many_elements(tolerance=Tolerance(atol=5e-4)),
    ),
    Trap(
        "normalization of many elements by another number",
        "the file adds 1e-3 to the variance, PyTorch 1e-5",
        _many_elements(init={"wrong": True}),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "branch beside an undefined output",
        "zeros give NaN in one output, and another branch in the other",
        _pair("UndefinedBesideFixed", "share", "y"),
        parity("values", "equal values of x: output 'y'"),
    ),
    Trap(
        "branch in the graph beside an undefined output",
        "`torch.where` chooses again for each input",
        _pair("UndefinedBesideFixed", "share", "y", wrong=False),
    ),
    Trap(
        "branch beside an undefined element",
        "a zero gives NaN in its element, and another branch in the others",
        contract("rounding.py:PartlyUndefined"),
        parity("values", "special values of x: output 'y'"),
    ),
    Trap(
        "branch in the graph beside an undefined element",
        "`torch.where` chooses again for each input",
        contract("rounding.py:PartlyUndefined", init={"wrong": False}),
    ),
    Trap(
        "output class without keys",
        "PyTorch flattens the outputs of diffusers without their names",
        _pair("WithoutKeys", "sample", "noise", opset=DYNAMO),
    ),
    Trap(
        "output class without keys in another order",
        "the file would have exchanged names",
        _pair("WithoutKeys", "noise", "sample", opset=DYNAMO),
        failed(Stage.SOURCE, "the entry declares them in another order"),
    ),
)
