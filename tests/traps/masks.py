"""Traps: masks, padding and lengths as inputs."""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec
from tests.traps.trap import (
    DYNAMO,
    TORCHSCRIPT,
    Trap,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
)

_BATCH = Axis(name="batch", example=3)
_LENGTH = Axis(name="length", example=5)


def _attention(
    source: str, opset: int, fill: str, dtype: str = "int64", side: str = "", masked_by: str = ""
) -> ModelSpec:
    rule = make_fill(fill, side=side)
    mask = declare_input("mask", "batch", "length", at="args[1]", dtype=dtype, fill=rule)
    output = declare_output("y", "batch", "length", 4)
    return contract(
        f"masks.py:{source}",
        opset,
        inputs=(declare_input("x", "batch", "length", 4), mask),
        outputs=(output.model_copy(update={"masked_by": masked_by}),),
        axes=(_BATCH, _LENGTH),
    )


def _pooling(source: str) -> ModelSpec:
    lengths = declare_input(
        "lengths", "batch", at="args[1]", dtype="int64", fill=make_fill("lengths_of", axis="length")
    )
    return contract(
        f"masks.py:{source}",
        inputs=(declare_input("x", "batch", "length", 4), lengths),
        axes=(_BATCH, _LENGTH),
    )


MASKS = (
    Trap(
        "mask of ones under dynamo",
        "a row without any 1 has no defined result, so probes keep a 1 in each row",
        _attention("Attention", DYNAMO, "ones"),
    ),
    Trap(
        "causal mask of ones under dynamo",
        "the first row sees only itself, so probes keep the first 1",
        _attention("CausalAttention", DYNAMO, "ones"),
    ),
    Trap(
        "padding of zeros under dynamo",
        "True means masked here, so probes keep a False in each row",
        _attention("PaddingAttention", DYNAMO, "zeros", "bool"),
    ),
    Trap(
        "mask of ones, thoroughly",
        "a difference in rows without any 1 is only a note",
        _attention("Attention", DYNAMO, "ones").model_copy(update={"thorough": True}),
    ),
    Trap(
        "mask dropped by a trace",
        "the mask of the example allows everything, and the trace drops it",
        _attention("FullMaskOnly", TORCHSCRIPT + 1, "ones"),
        parity("values", "in this sample, mask: 8 of 15 elements are 0"),
    ),
    Trap(
        "padding on the left of a causal model",
        "the first rows see no allowed row: the values there have no meaning",
        _attention("CausalAttention", DYNAMO, "mask", side="left"),
        parity("parity", "in this sample, mask:"),
    ),
    Trap(
        "padding longer than a window of attention",
        "the rows of padding see only padding; short masks do not show it",
        _attention("WindowAttention", DYNAMO, "ones"),
        parity("values", "padded mask"),
    ),
    Trap(
        "padding longer than a window, with `masked_by`",
        "only the values at allowed positions are compared",
        _attention("WindowAttention", DYNAMO, "ones", masked_by="mask"),
    ),
    Trap(
        "padding on the left with `masked_by`",
        "only the values at allowed positions are compared",
        _attention("CausalAttention", DYNAMO, "mask", side="left", masked_by="mask"),
    ),
    Trap(
        "padding of True with `masked_by`",
        "True means padding, so the values at False are compared",
        _attention(
            "CausalPaddingAttention", DYNAMO, "padding", "bool", side="left", masked_by="mask"
        ),
    ),
    Trap(
        "mask of the example with `masked_by`",
        "the wrong values are at allowed positions",
        _attention("MaskOfExample", TORCHSCRIPT + 1, "mask", side="right", masked_by="mask"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "lengths of rows", "every length is from 1 to the size of the axis", _pooling("PooledRows")
    ),
    Trap(
        "first length baked in",
        "Python reads the first length of the example",
        _pooling("PooledFirstLength"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "length of the first row baked in",
        "the number of ones in the first row is a constant of the trace",
        contract(
            "masks.py:FirstLength",
            inputs=(
                declare_input("x", "batch", 5, 4),
                declare_input(
                    "mask", "batch", 5, at="args[1]", dtype="int64", fill=make_fill("ones")
                ),
            ),
            outputs=(declare_output("y", "batch", 5, 4),),
        ),
        parity("values", "other mask: output 'y': error"),
    ),
)
