"""Traps: masks, padding and lengths as inputs.

Output: `MASKS`.
"""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec
from tests.traps.trap import (
    DYNAMO,
    SOUND,
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
        name="mask of ones under dynamo",
        story="a row without any 1 has no defined result, so probes keep a 1 in each row",
        spec=_attention("Attention", DYNAMO, "ones"),
        verdict=SOUND,
    ),
    Trap(
        name="causal mask of ones under dynamo",
        story="the first row sees only itself, so probes keep the first 1",
        spec=_attention("CausalAttention", DYNAMO, "ones"),
        verdict=SOUND,
    ),
    Trap(
        name="padding of zeros under dynamo",
        story="True means masked here, so probes keep a False in each row",
        spec=_attention("PaddingAttention", DYNAMO, "zeros", "bool"),
        verdict=SOUND,
    ),
    Trap(
        name="mask of ones, thoroughly",
        story="a difference in rows without any 1 is only a note",
        spec=_attention("Attention", DYNAMO, "ones").model_copy(update={"thorough": True}),
        verdict=SOUND,
    ),
    Trap(
        name="mask dropped by a trace",
        story="the mask of the example allows everything, and the trace drops it",
        spec=_attention("FullMaskOnly", TORCHSCRIPT + 1, "ones"),
        verdict=parity("values", "in this sample, mask: 8 of 15 elements are 0"),
    ),
    Trap(
        name="padding on the left of a causal model",
        story="the first rows see no allowed row: the values there have no meaning",
        spec=_attention("CausalAttention", DYNAMO, "mask", side="left"),
        verdict=parity("parity", "in this sample, mask:"),
    ),
    Trap(
        name="padding longer than a window of attention",
        story="the rows of padding see only padding; short masks do not show it",
        spec=_attention("WindowAttention", DYNAMO, "ones"),
        verdict=parity("values", "padded mask"),
    ),
    Trap(
        name="padding longer than a window, with `masked_by`",
        story="only the values at allowed positions are compared",
        spec=_attention("WindowAttention", DYNAMO, "ones", masked_by="mask"),
        verdict=SOUND,
    ),
    Trap(
        name="padding on the left with `masked_by`",
        story="only the values at allowed positions are compared",
        spec=_attention("CausalAttention", DYNAMO, "mask", side="left", masked_by="mask"),
        verdict=SOUND,
    ),
    Trap(
        name="padding of True with `masked_by`",
        story="True means padding, so the values at False are compared",
        spec=_attention(
            "CausalPaddingAttention", DYNAMO, "padding", "bool", side="left", masked_by="mask"
        ),
        verdict=SOUND,
    ),
    Trap(
        name="mask of the example with `masked_by`",
        story="the wrong values are at allowed positions",
        spec=_attention("MaskOfExample", TORCHSCRIPT + 1, "mask", side="right", masked_by="mask"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="lengths of rows",
        story="every length is from 1 to the size of the axis",
        spec=_pooling("PooledRows"),
        verdict=SOUND,
    ),
    Trap(
        name="first length baked in",
        story="Python reads the first length of the example",
        spec=_pooling("PooledFirstLength"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="length of the first row baked in",
        story="the number of ones in the first row is a constant of the trace",
        spec=contract(
            "masks.py:FirstLength",
            inputs=(
                declare_input("x", "batch", 5, 4),
                declare_input(
                    "mask", "batch", 5, at="args[1]", dtype="int64", fill=make_fill("ones")
                ),
            ),
            outputs=(declare_output("y", "batch", 5, 4),),
        ),
        verdict=parity("values", "other mask: output 'y': error"),
    ),
)
