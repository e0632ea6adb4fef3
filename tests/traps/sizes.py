"""Traps: a size of the example that stays in the file, and sizes without a promise.

Output: `SIZES`.
"""

from __future__ import annotations

from exporter.manifest import Axis
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    Trap,
    contract,
    declare_input,
    declare_output,
    failed,
    make_fill,
    parity,
    refused,
    structure,
)

_IDS = declare_input(
    "ids", "batch", "length", dtype="int64", fill=make_fill("randint", low=0, high=20)
)


def _ranged(**length: object) -> dict[str, object]:
    return {
        "inputs": (_IDS,),
        "outputs": (declare_output("y", "batch", "length", 4),),
        "axes": (
            Axis(name="batch", example=3),
            Axis.model_validate({"name": "length", "example": 5} | length),
        ),
    }


SIZES = (
    Trap(
        name="x.view(2, -1)",
        story="a batch of 2 in the model's own view: PyTorch gives no batch either",
        spec=contract("sizes.py:ViewTwo", axes=(Axis(name="batch", example=2),)),
        verdict=failed(Stage.SOURCE, "batch=5: output 'y' is declared [batch, 4] with batch="),
    ),
    Trap(
        name="view by a Python number",
        story="`int(x.shape[0])` is a constant of the trace",
        spec=contract("sizes.py:ViewInt"),
        verdict=parity("axes", "the runtime fails"),
    ),
    Trap(
        name="view by the shape",
        story="a size that stays symbolic",
        spec=contract("sizes.py:ViewSize"),
        verdict=SOUND,
    ),
    Trap(
        name="view by the shape under dynamo",
        story="a size that stays symbolic",
        spec=contract("sizes.py:ViewSize", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="view by -1",
        story="-1 means any batch",
        spec=contract("sizes.py:ViewRest"),
        verdict=SOUND,
    ),
    Trap(
        name="in-place arithmetic on a size",
        story="`size += 2` on a size that is a tensor for the tracer",
        spec=contract(
            "sizes.py:GrownShape",
            outputs=(declare_output("y", "grown", 4),),
            axes=(Axis(name="batch", example=3), Axis(name="grown", example=None)),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="in-place arithmetic on a size as a tensor",
        story="`torch.tensor(size).mul_(2)`: the tracer follows it",
        spec=contract("sizes.py:InPlaceShape"),
        verdict=SOUND,
    ),
    Trap(
        name="Python loop over rows",
        story="a trace has as many rows as its example",
        spec=contract("sizes.py:RowLoop"),
        verdict=parity("axes", "batch=7: output 'y': error"),
    ),
    Trap(
        name="Python loop over rows under dynamo",
        story="torch.export refuses to fix a dynamic axis",
        spec=contract("sizes.py:RowLoop", DYNAMO),
        verdict=refused(Stage.CAPTURE, "inferred a static shape"),
    ),
    Trap(
        name="sum over rows",
        story="`cumsum` has no count of rows in it",
        spec=contract("sizes.py:Cumulative"),
        verdict=SOUND,
    ),
    Trap(
        name="cut at a Python number",
        story="`len(x) // 2` is a constant of the trace",
        spec=contract("sizes.py:HalfSplit"),
        verdict=parity("axes", "output 'y'"),
    ),
    Trap(
        name="mask of the example's length",
        story="PyTorch itself takes no other batch: the promise is unsound",
        spec=contract("sizes.py:FixedMask"),
        verdict=failed(Stage.SOURCE, "PyTorch itself fails on batch=7"),
    ),
    Trap(
        name="positions of any length",
        story="`arange` of a dynamic size",
        spec=contract(
            "sizes.py:Positions",
            inputs=(declare_input("x", "batch", "length"),),
            outputs=(declare_output("y", "batch", "length"),),
            axes=(Axis(name="batch", example=3), Axis(name="length", example=5)),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="state of the example's batch",
        story="a buffer of three rows broadcasts only to a batch of 1",
        spec=contract("sizes.py:FixedZeros"),
        verdict=failed(Stage.SOURCE, "PyTorch itself fails on batch=7"),
    ),
    Trap(
        name="batch of 1 specialised",
        story="a trace never takes the way of a batch of 1",
        spec=contract("sizes.py:BatchOfOne"),
        verdict=parity("axes", "batch=1: output 'y': error"),
    ),
    Trap(
        name="batch of 1 specialised under dynamo",
        story="torch.export takes it that a dynamic axis is never 1",
        spec=contract("sizes.py:BatchOfOne", DYNAMO),
        verdict=parity("axes", "batch=1: output 'y': error"),
    ),
    Trap(
        name="batch of 1 not promised",
        story="the same model with `min = 2`",
        spec=contract("sizes.py:BatchOfOne", axes=(Axis(name="batch", example=3, min=2),)),
        verdict=SOUND,
    ),
    Trap(
        name="squeeze of every 1",
        story="`squeeze()` takes a batch of 1 away too",
        spec=contract("sizes.py:Squeezed"),
        verdict=failed(Stage.SOURCE, "batch=1: output 'y' is declared [batch, 4]"),
    ),
    Trap(
        name="squeeze of one dimension",
        story="`squeeze(1)` leaves the batch",
        spec=contract("sizes.py:SqueezedAt"),
        verdict=SOUND,
    ),
    Trap(
        name="position table too short for near sizes",
        story="6 rows, any length promised",
        spec=contract("sizes.py:Table", init={"length": 6}, **_ranged()),
        verdict=parity("axes", "PyTorch itself fails on length="),
    ),
    Trap(
        name="position table too short for the maximum",
        story="100 rows, 128 promised",
        spec=contract("sizes.py:Table", init={"length": 100}, **_ranged(max=128)),
        verdict=parity("axes", "PyTorch itself fails on length=128"),
    ),
    Trap(
        name="position table too short for distant sizes",
        story="100 rows, any length promised: without a `max`, only `thorough` looks for tables",
        spec=contract("sizes.py:Table", init={"length": 100}, thorough=True, **_ranged()),
        verdict=parity("axes", "PyTorch itself fails on length=101"),
    ),
    Trap(
        name="position table as long as promised",
        story="100 rows, 100 promised",
        spec=contract("sizes.py:Table", init={"length": 100}, **_ranged(max=100)),
        verdict=SOUND,
    ),
    Trap(
        name="position table clamped",
        story="the last of 6 rows serves all that come after",
        spec=contract("sizes.py:Clamped"),
        verdict=SOUND,
    ),
    Trap(
        name="two axes that must be one",
        story="two names for axes that PyTorch adds row by row",
        spec=contract(
            "sizes.py:Paired",
            inputs=(declare_input("left", "a", 4), declare_input("right", "b", 4, at="args[1]")),
            outputs=(declare_output("y", "a", 4),),
            axes=(Axis(name="a", example=3), Axis(name="b", example=5)),
        ),
        verdict=refused(Stage.SOURCE, "must match the size"),
    ),
    Trap(
        name="one axis of two inputs",
        story="one name, one size",
        spec=contract(
            "sizes.py:Paired", inputs=(declare_input("left"), declare_input("right", at="args[1]"))
        ),
        verdict=SOUND,
    ),
    Trap(
        name="output axis that is fixed",
        story="declared `batch`, always 4: equal only at the example",
        spec=contract(
            "sizes.py:Crossed",
            outputs=(declare_output("y", "batch", "batch"),),
            axes=(Axis(name="batch", example=4),),
        ),
        verdict=failed(Stage.SOURCE, "output 'y' is declared [batch, batch] with batch=9"),
    ),
    Trap(
        name="output axes crossed",
        story="`[columns, rows]` declared as `[rows, columns]`",
        spec=contract(
            "sizes.py:Crossed",
            inputs=(declare_input("x", "rows", "columns"),),
            outputs=(declare_output("y", "rows", "columns"),),
            axes=(Axis(name="rows", example=3), Axis(name="columns", example=5)),
        ),
        verdict=failed(Stage.SOURCE, "output 'y' is declared [rows, columns]"),
    ),
    Trap(
        name="output axes as they are",
        story="`[columns, rows]`",
        spec=contract(
            "sizes.py:Crossed",
            inputs=(declare_input("x", "rows", "columns"),),
            outputs=(declare_output("y", "columns", "rows"),),
            axes=(Axis(name="rows", example=3), Axis(name="columns", example=5)),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="only multiples promised",
        story="pooling by 2 of a length that is a multiple of 2",
        spec=contract(
            "sizes.py:Pooled",
            inputs=(declare_input("x", "batch", "length"),),
            outputs=(declare_output("y", "batch", "half"),),
            axes=(
                Axis(name="batch", example=3),
                Axis(name="length", example=6, multiple_of=2),
                Axis(name="half", example=None),
            ),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="resized by a factor",
        story="twice as long for every length",
        spec=contract(
            "sizes.py:Upsampled",
            inputs=(declare_input("x", "batch", "length"),),
            outputs=(declare_output("y", "batch", "twice"),),
            axes=(
                Axis(name="batch", example=3),
                Axis(name="length", example=5),
                Axis(name="twice", example=None),
            ),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="recurrent over any length",
        story="TorchScript keeps a GRU whole",
        spec=contract(
            "sizes.py:Recurrent",
            inputs=(declare_input("x", 3, "length", 4),),
            outputs=(declare_output("y", 3, "length", 4),),
            axes=(Axis(name="length", example=5),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="recurrent under dynamo",
        story="a GRU is taken apart at the length of the example",
        spec=contract(
            "sizes.py:Recurrent",
            DYNAMO,
            inputs=(declare_input("x", 3, "length", 4),),
            outputs=(declare_output("y", 3, "length", 4),),
            axes=(Axis(name="length", example=5),),
        ),
        verdict=structure("signature", "axis 'length' of output 'y' is fixed at 5"),
        repaired=(2, 15),
    ),
    Trap(
        name="operator that the opset lacks",
        story="TorchScript has attention from opset 14 on",
        spec=contract(
            "sizes.py:Attention",
            inputs=(declare_input("x", "batch", 2, 4),),
            outputs=(declare_output("y", "batch", 2, 4),),
        ),
        verdict=refused(Stage.CONVERT, "scaled_dot_product_attention"),
    ),
    Trap(
        name="operator that the opset has",
        story="the same at opset 14",
        spec=contract(
            "sizes.py:Attention",
            14,
            inputs=(declare_input("x", "batch", 2, 4),),
            outputs=(declare_output("y", "batch", 2, 4),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="size that the exporter lost",
        story="a wrong size is declared and TorchScript infers none",
        spec=contract(
            "sizes.py:Shuffled",
            9,
            inputs=(declare_input("x", "batch", 4, 3, 3),),
            outputs=(declare_output("y", "batch", 1, 6, 7),),
        ),
        verdict=failed(Stage.SOURCE, "PyTorch gives [3, 1, 6, 6]"),
    ),
    Trap(
        name="size that the exporter lost, right",
        story="the right size is declared there, and proved by running",
        spec=contract(
            "sizes.py:Shuffled",
            9,
            inputs=(declare_input("x", "batch", 4, 3, 3),),
            outputs=(declare_output("y", "batch", 1, 6, 6),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="size by values",
        story="an output-only axis is as long as values make it",
        spec=contract(
            "sizes.py:SizeByValues",
            outputs=(declare_output("y", "found", 2, dtype="int64"),),
            axes=(Axis(name="batch", example=3), Axis(name="found", example=None)),
        ),
        verdict=SOUND,
    ),
)
