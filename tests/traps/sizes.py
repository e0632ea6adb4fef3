"""Traps: a size of the example that stays in the file, and sizes without a promise."""

from __future__ import annotations

from typing import Any

from exporter.manifest import Axis
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    Trap,
    contract,
    declare_input,
    declare_output,
    failed,
    make_fill,
    parity,
    refused,
    structure,
    traps,
)

_IDS = declare_input(
    "ids", "batch", "length", dtype="int64", fill=make_fill("randint", low=0, high=20)
)


def _ranged(width: int = 4, **length: object) -> dict[str, object]:
    return {
        "inputs": (_IDS,),
        "outputs": (declare_output("y", "batch", "length", width),),
        "axes": (
            Axis(name="batch", example=3),
            Axis.model_validate({"name": "length", "example": 5} | length),
        ),
    }


def _pair(output: str) -> dict[str, Any]:
    return {
        "signature": f"x [length], z [count] -> y [{output}]",
        "axes": (Axis(name="length", example=5), Axis(name="count", example=9)),
    }


SIZES = (
    Trap(
        "x.view(2, -1)",
        "a batch of 2 in the model's own view: PyTorch gives no batch either",
        contract("sizes.py:ViewTwo", axes=(Axis(name="batch", example=2),)),
        failed(Stage.SOURCE, "batch=5: output 'y' is declared [batch, 4] with batch="),
    ),
    Trap(
        "view by a Python number",
        "`int(x.shape[0])` is a constant of the trace",
        contract("sizes.py:ViewInt"),
        parity("axes", "the runtime fails"),
    ),
    *traps("view by the shape", "a size that stays symbolic", "sizes.py:ViewSize"),
    Trap("view by -1", "-1 means any batch", contract("sizes.py:ViewRest")),
    Trap(
        "in-place arithmetic on a size",
        "`size += 2` on a size that is a tensor for the tracer",
        contract("sizes.py:GrownShape", signature="x [batch, 4] -> y [grown, 4]"),
    ),
    Trap(
        "in-place arithmetic on a size as a tensor",
        "`torch.tensor(size).mul_(2)`: the tracer follows it",
        contract("sizes.py:InPlaceShape"),
    ),
    Trap(
        "Python loop over rows",
        "a trace has as many rows as its example",
        contract("sizes.py:RowLoop"),
        parity("axes", "batch=7: output 'y': error"),
    ),
    Trap(
        "Python loop over rows under dynamo",
        "torch.export refuses to fix a dynamic axis",
        contract("sizes.py:RowLoop", DYNAMO),
        refused(Stage.CAPTURE, "inferred a static shape"),
    ),
    Trap("sum over rows", "`cumsum` has no count of rows in it", contract("sizes.py:Cumulative")),
    Trap(
        "cut at a Python number",
        "`len(x) // 2` is a constant of the trace",
        contract("sizes.py:HalfSplit"),
        parity("axes", "output 'y'"),
    ),
    Trap(
        "mask of the example's length",
        "PyTorch itself takes no other batch: the promise is unsound",
        contract("sizes.py:FixedMask"),
        failed(Stage.SOURCE, "PyTorch itself fails on batch=7"),
    ),
    Trap(
        "positions of any length",
        "`arange` of a dynamic size",
        contract("sizes.py:Positions", signature="x [batch, length=5] -> y [batch, length]"),
    ),
    Trap(
        "state of the example's batch",
        "a buffer of three rows broadcasts only to a batch of 1",
        contract("sizes.py:FixedZeros"),
        failed(Stage.SOURCE, "PyTorch itself fails on batch=7"),
    ),
    Trap(
        "batch of 1 specialised",
        "a trace never takes the way of a batch of 1",
        contract("sizes.py:BatchOfOne"),
        parity("axes", "batch=1: output 'y': error"),
    ),
    Trap(
        "batch of 1 specialised under dynamo",
        "torch.export takes it that a dynamic axis is never 1",
        contract("sizes.py:BatchOfOne", DYNAMO),
        parity("axes", "batch=1: output 'y': error"),
    ),
    Trap(
        "batch of 1 not promised",
        "the same model with `min = 2`",
        contract("sizes.py:BatchOfOne", axes=(Axis(name="batch", example=3, min=2),)),
    ),
    Trap(
        "squeeze of every 1",
        "`squeeze()` takes a batch of 1 away too",
        contract("sizes.py:Squeezed"),
        failed(Stage.SOURCE, "batch=1: output 'y' is declared [batch, 4]"),
    ),
    Trap(
        "squeeze of one dimension", "`squeeze(1)` leaves the batch", contract("sizes.py:SqueezedAt")
    ),
    Trap(
        "position table too short for near sizes",
        "6 rows, any length promised",
        contract("sizes.py:Table", init={"length": 6}, **_ranged()),
        parity("axes", "PyTorch itself fails on length="),
    ),
    Trap(
        "position table too short for the maximum",
        "100 rows, 128 promised",
        contract("sizes.py:Table", init={"length": 100}, **_ranged(max=128)),
        parity("axes", "PyTorch itself fails on batch=1 length=128"),
    ),
    Trap(
        "wide position table too short for the maximum",
        "512 rows of 768 columns, 1024 promised: a measured run is affordable",
        contract("sizes.py:Table", init={"length": 512, "width": 768}, **_ranged(768, max=1024)),
        parity("axes", "PyTorch itself fails on batch=1 length=1024"),
    ),
    Trap(
        "wide position table as long as promised",
        "1024 rows, 1024 promised",
        contract("sizes.py:Table", init={"length": 1024, "width": 768}, **_ranged(768, max=1024)),
    ),
    Trap(
        "position table too short for distant sizes",
        "100 rows, any length promised: without a `max`, only `thorough` looks for tables",
        contract("sizes.py:Table", init={"length": 100}, thorough=True, **_ranged()),
        parity("axes", "PyTorch itself fails on length=101"),
    ),
    Trap(
        "position table as long as promised",
        "100 rows, 100 promised",
        contract("sizes.py:Table", init={"length": 100}, **_ranged(max=100)),
    ),
    Trap(
        "position table clamped",
        "the last of 6 rows serves all that come after",
        contract("sizes.py:Clamped"),
    ),
    Trap(
        "two axes that must be one",
        "two names for axes that PyTorch adds row by row",
        contract("sizes.py:Paired", signature="left [a=3, 4], right [b=5, 4] -> y [a, 4]"),
        refused(Stage.SOURCE, "must match the size"),
    ),
    Trap(
        "one axis of two inputs",
        "one name, one size",
        contract("sizes.py:Paired", signature="left [batch, 4], right [batch, 4] -> y [batch, 4]"),
    ),
    Trap(
        "output axis that is fixed",
        "declared `batch`, always 4: equal only at the example",
        contract("sizes.py:Crossed", signature="x [batch=4, 4] -> y [batch, batch]"),
        failed(Stage.SOURCE, "output 'y' is declared [batch, batch] with batch=9"),
    ),
    Trap(
        "output axes crossed",
        "`[columns, rows]` declared as `[rows, columns]`",
        contract("sizes.py:Crossed", signature="x [rows=3, columns=5] -> y [rows, columns]"),
        failed(Stage.SOURCE, "output 'y' is declared [rows, columns]"),
    ),
    Trap(
        "output axes as they are",
        "`[columns, rows]`",
        contract("sizes.py:Crossed", signature="x [rows=3, columns=5] -> y [columns, rows]"),
    ),
    Trap(
        "only multiples promised",
        "pooling by 2 of a length that is a multiple of 2",
        contract(
            "sizes.py:Pooled",
            signature="x [batch, length] -> y [batch, half]",
            axes=(
                Axis(name="batch", example=3),
                Axis(name="length", example=6, multiple_of=2),
                Axis(name="half", example=None),
            ),
        ),
    ),
    Trap(
        "resized by a factor",
        "twice as long for every length",
        contract("sizes.py:Upsampled", signature="x [batch, length=5] -> y [batch, twice]"),
    ),
    Trap(
        "recurrent over any length",
        "TorchScript keeps a GRU whole",
        contract("sizes.py:Recurrent", signature="x [3, length=5, 4] -> y [3, length, 4]"),
    ),
    Trap(
        "recurrent under dynamo",
        "a GRU is taken apart at the length of the example",
        contract("sizes.py:Recurrent", DYNAMO, "x [3, length=5, 4] -> y [3, length, 4]"),
        structure("signature", "axis 'length' of output 'y' is fixed at 5"),
        repaired=(2, 15),
    ),
    Trap(
        "recurrent of one length under dynamo",
        "onnxscript before 0.7.1 writes another order of the gates",
        contract("sizes.py:Recurrent", DYNAMO, "x [3, 5, 4] -> y [3, 5, 4]"),
    ),
    Trap(
        "operator that the opset lacks",
        "TorchScript has attention from opset 14 on",
        contract("sizes.py:Attention", signature="x [batch, 2, 4] -> y [batch, 2, 4]"),
        refused(Stage.CONVERT, "scaled_dot_product_attention"),
    ),
    Trap(
        "operator that the opset has",
        "the same at opset 14",
        contract("sizes.py:Attention", 14, "x [batch, 2, 4] -> y [batch, 2, 4]"),
    ),
    Trap(
        "size that the exporter lost",
        "a wrong size is declared and TorchScript infers none",
        contract("sizes.py:Shuffled", 9, "x [batch, 4, 3, 3] -> y [batch, 1, 6, 7]"),
        failed(Stage.SOURCE, "PyTorch gives [3, 1, 6, 6]"),
    ),
    Trap(
        "size that the exporter lost, right",
        "the right size is declared there, and proved by running",
        contract("sizes.py:Shuffled", 9, "x [batch, 4, 3, 3] -> y [batch, 1, 6, 6]"),
    ),
    Trap(
        "size by values",
        "an output-only axis is as long as values make it",
        contract("sizes.py:SizeByValues", signature="x [batch, 4] -> y int64 [found, 2]"),
    ),
    *traps(
        "resize to the length of another input",
        "float32 rounds the quotient of two sizes, at 132 of 4,096 pairs",
        "sizes.py:ResizedToOther",
        parity("axes", "length="),
        **_pair("count"),
    ),
    *traps(
        "resize to the length of another input in integers",
        "integers have no rounding",
        "sizes.py:ResizedToOther",
        **_pair("count"),
        init={"exact": True},
    ),
    Trap(
        "range with a quotient as its step",
        "float32 rounds the step, so that 14 of 4,096 pairs have one element more",
        contract("sizes.py:RangeOfQuotient", **_pair("steps")),
        parity("axes", "length="),
    ),
    Trap(
        "range with a quotient in integers",
        "integers have no rounding",
        contract("sizes.py:RangeOfQuotient", **_pair("steps"), init={"exact": True}),
    ),
)
