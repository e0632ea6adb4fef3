"""Traps: half precision, complex numbers, lists of tensors, tensors without elements.

In: nothing. Out: `KINDS`.
"""

from __future__ import annotations

import numpy as np

from exporter.manifest import ModelSpec
from exporter.record import Stage
from tests.traps import edits
from tests.traps import tampering as tamper
from tests.traps.sound import OFF
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Tamper,
    Trap,
    Verdict,
    contract,
    failed,
    given,
    inconclusive,
    parity,
    put_out,
    refused,
    structure,
)


def _picture(precision: str, opset: int) -> ModelSpec:
    return contract(
        "files.py:Picture",
        opset,
        precision=precision,
        inputs=(given("x", "batch", 2, 6, 6, dtype=precision),),
        outputs=(put_out("y", "batch", 3, dtype=precision),),
    )


def _half(
    name: str, story: str, how: Tamper | None, verdict: Verdict = OFF, opset: int = TORCHSCRIPT
) -> Trap:
    return Trap(
        name=f"float16: {name}",
        story=story,
        spec=_picture("float16", opset),
        tamper=how,
        verdict=verdict,
    )


_HALF = (
    _half(
        "cast", "`precision` casts the model, and 8 times its own rounding is allowed", None, SOUND
    ),
    _half("cast, under dynamo", "the same at opset 18", None, SOUND, DYNAMO),
    _half("activation left out", "LeakyRelu is gone", tamper.skip("LeakyRelu")),
    _half(
        "softmax axis, under dynamo",
        "over another axis of the same size",
        tamper.attribute("Softmax", "axis", 1),
        OFF,
        DYNAMO,
    ),
    _half("weights swapped", "the two biases", tamper.swap_weights("first.bias", "second.bias")),
    _half(
        "one weight",
        "one element of the first convolution is off by 1",
        tamper.weight("first.weight", tamper.one_element(1.0)),
    ),
    Trap(
        name="float64 where no kernel is",
        story="ONNX Runtime has no Conv in float64 on the CPU",
        spec=_picture("float64", TORCHSCRIPT),
        verdict=refused(Stage.LOAD, "CPUExecutionProvider has no kernel for Conv in float64"),
    ),
)

_Z = given("z", "batch", 4, dtype="complex64")
_ROTATED = contract(
    "kinds.py:Rotated",
    DYNAMO,
    inputs=(_Z,),
    outputs=(put_out("w", "batch", 4, dtype="complex64"), put_out("size", "batch", 4)),
)
_SPECTRUM = contract(
    "kinds.py:Spectrum",
    DYNAMO,
    outputs=(put_out("y", "batch", 4, dtype="complex64"),),
)


def _complex(
    name: str, story: str, how: Tamper | None, verdict: Verdict, **changes: object
) -> Trap:
    return Trap(
        name=f"complex: {name}",
        story=story,
        spec=_ROTATED.model_copy(update=changes),
        tamper=how,
        verdict=verdict,
    )


_COMPLEX = (
    _complex("in and out", "the file has pairs of float32 in a last dimension", None, SOUND),
    Trap(name="complex: out alone", story="a Fourier transform", spec=_SPECTRUM, verdict=SOUND),
    _complex(
        "product of parts",
        "the product of the imaginary parts is added to the real part",
        tamper.replace("Sub", "Add"),
        parity("parity", "output 'w': error"),
    ),
    _complex(
        "not conjugated",
        "the imaginary part has the other sign",
        tamper.after("w", "Mul", np.array([1, -1], np.float32)),
        parity("parity", "output 'w': error"),
    ),
    _complex(
        "declared as pairs",
        "the model returns complex numbers: that is what the contract says",
        None,
        failed(Stage.SOURCE, "output 'w' is complex64, declared float32"),
        outputs=(put_out("w", "batch", 4, 2), put_out("size", "batch", 4)),
    ),
    _complex(
        "real output declared complex",
        "the magnitude has no imaginary part",
        None,
        failed(Stage.SOURCE, "output 'size' is float32, declared complex64"),
        outputs=(
            put_out("w", "batch", 4, dtype="complex64"),
            put_out("size", "batch", 4, dtype="complex64"),
        ),
    ),
    _complex(
        "under TorchScript",
        "its exporter knows none",
        None,
        refused(Stage.CONVERT, "TorchScript exports no complex numbers: input 'z' is complex64"),
        opsets=(TORCHSCRIPT,),
    ),
)

_CACHED = contract(
    "kinds.py:Cached",
    inputs=(given(), given("past", "batch", 0, at="args[1]")),
    outputs=(put_out("y", "batch", 4), put_out("kept", "batch", 0)),
)

_EMPTY = (
    Trap(
        name="no elements: in and out",
        story="a cache at its first step: a fixed size of 0",
        spec=_CACHED,
        verdict=SOUND,
    ),
    Trap(
        name="no elements: in and out, under dynamo",
        story="the same at opset 18",
        spec=_CACHED.model_copy(update={"opsets": (DYNAMO,)}),
        verdict=SOUND,
    ),
    Trap(
        name="no elements: in the file one",
        story="the cache comes out with one column",
        spec=_CACHED,
        tamper=tamper.after("kept", "Pad", np.array([0, 0, 0, 1])),
        verdict=structure("wellformed", "existing shape differ in dimension 1: (1) vs (0)"),
    ),
    Trap(
        name="no elements: in the file one, unseen by ONNX",
        story="by a shape that ONNX does not infer",
        spec=_CACHED,
        tamper=tamper.edited(edits.column_where_none_is),
        verdict=parity("parity", "output 'kept': shape [3, 1], PyTorch gives [3, 0]"),
    ),
    Trap(
        name="no elements: none anywhere",
        story="nothing is compared",
        spec=contract("kinds.py:Nothing", outputs=(put_out("y", "batch", 0),)),
        verdict=inconclusive("power", "no output has an element"),
    ),
)

KINDS = (*_HALF, *_COMPLEX, *_EMPTY)
