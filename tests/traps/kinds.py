"""Traps: half precision, complex numbers, lists of tensors, tensors without elements.

In: nothing. Out: `KINDS`.
"""

from __future__ import annotations

from exporter.manifest import ModelSpec
from exporter.record import Stage
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
    given,
    put_out,
    refused,
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

KINDS = _HALF
