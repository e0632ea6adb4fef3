"""Traps: inputs and outputs of a model.

Output: `SIGNATURES`.
"""

from __future__ import annotations

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

_EXTRA = {"inputs": (declare_input(), declare_input("extra", at="args[1]"))}


def _pair(first: str, second: str) -> dict[str, object]:
    return {"outputs": (declare_output(first, "batch", 4), declare_output(second, "batch", 4))}


SIGNATURES = (
    Trap(
        name="dict output",
        story="its values in the order of its keys",
        spec=contract("outputs.py:Dictionary", **_pair("double", "back")),
        verdict=SOUND,
    ),
    Trap(
        name="dict output under dynamo",
        story="its values in the order of its keys",
        spec=contract("outputs.py:Dictionary", DYNAMO, **_pair("double", "back")),
        verdict=SOUND,
    ),
    Trap(
        name="dict output in another order",
        story="the keys are the declared names, and would each name the other's value",
        spec=contract("outputs.py:Dictionary", **_pair("back", "double")),
        verdict=failed(Stage.SOURCE, "in another order"),
    ),
    Trap(
        name="str output",
        story="a str vanishes from a graph",
        spec=contract("outputs.py:Text"),
        verdict=failed(Stage.SOURCE, "['kind']: str); only tensors"),
    ),
    Trap(
        name="number output",
        story="a Python number vanishes from a graph",
        spec=contract("outputs.py:Number", **_pair("y", "n")),
        verdict=failed(Stage.SOURCE, "[1]: int); only tensors"),
    ),
    Trap(
        name="None output",
        story="None is no output, and the declared one is there",
        spec=contract("outputs.py:Nothing"),
        verdict=SOUND,
    ),
    Trap(
        name="None output under dynamo",
        story="None is no output, and the declared one is there",
        spec=contract("outputs.py:Nothing", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="None output that was declared",
        story="two are declared and one of them is None",
        spec=contract("outputs.py:Nothing", **_pair("y", "cache")),
        verdict=failed(Stage.SOURCE, "the model returns 1 output ("),
    ),
    Trap(
        name="nested outputs",
        story="flattened in order",
        spec=contract(
            "outputs.py:Nested",
            outputs=(
                declare_output("a", "batch", 4),
                declare_output("b", "batch", 4),
                declare_output("c", "batch", 4),
            ),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="named tuple",
        story="flattened in order",
        spec=contract("outputs.py:NamedPair", **_pair("first", "second")),
        verdict=SOUND,
    ),
    Trap(
        name="too few outputs declared",
        story="a third output would ship unseen",
        spec=contract("outputs.py:Nested", **_pair("a", "b")),
        verdict=failed(Stage.SOURCE, "the model returns 3 outputs"),
    ),
    Trap(
        name="too many outputs declared",
        story="a promised output does not exist",
        spec=contract("values.py:ItemKept", **_pair("a", "b")),
        verdict=failed(Stage.SOURCE, "the model returns 1 output ("),
    ),
    Trap(
        name="one tensor as two outputs",
        story="both names have it",
        spec=contract("outputs.py:SameOutputTwice", **_pair("a", "b")),
        verdict=SOUND,
    ),
    Trap(
        name="one tensor as two outputs under dynamo",
        story="both names have it",
        spec=contract("outputs.py:SameOutputTwice", DYNAMO, **_pair("a", "b")),
        verdict=SOUND,
    ),
    Trap(
        name="one tensor as two outputs under dynamo, not optimised",
        story="torch gives both the last name",
        spec=contract(
            "outputs.py:SameOutputTwice", DYNAMO, **_pair("a", "b"), options={"optimize": False}
        ),
        verdict=SOUND,
    ),
    Trap(
        name="input as an output under dynamo, not optimised",
        story="torch gives the input the name of the output",
        spec=contract(
            "outputs.py:PassThrough", DYNAMO, **_pair("copy", "double"), options={"optimize": False}
        ),
        verdict=SOUND,
    ),
    Trap(
        name="input as an output, with weights as inputs",
        story="the graph is not optimised then",
        spec=contract(
            "outputs.py:LayerAndInput",
            DYNAMO,
            **_pair("copy", "y"),
            options={"export_params": False},
        ),
        verdict=SOUND,
    ),
    Trap(
        name="input as an output",
        story="the input keeps its name, the output has its own",
        spec=contract("outputs.py:PassThrough", **_pair("copy", "double")),
        verdict=SOUND,
    ),
    Trap(
        name="input as an output under dynamo",
        story="the input keeps its name, the output has its own",
        spec=contract("outputs.py:PassThrough", DYNAMO, **_pair("copy", "double")),
        verdict=SOUND,
    ),
    Trap(
        name="ignored input",
        story="TorchScript drops an input that nothing uses",
        spec=contract("outputs.py:Ignores", **_EXTRA),
        verdict=structure("signature", "inputs differ: the file has 1 (x), declared 2 (x, extra)"),
    ),
    Trap(
        name="ignored input under dynamo",
        story="dynamo keeps it only in the list",
        spec=contract("outputs.py:Ignores", DYNAMO, **_EXTRA),
        verdict=structure("signature", "the graph ignores input 'extra'"),
    ),
    Trap(
        name="inputs swapped in the contract",
        story="declared the other way round: they are then each other's",
        spec=contract(
            "outputs.py:Difference",
            inputs=(declare_input("left", at="args[1]"), declare_input("right", at="args[0]")),
            **_pair("a", "b"),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="wrong dtype declared",
        story="float64 is declared, float32 comes out",
        spec=contract(
            "values.py:ItemKept", outputs=(declare_output("y", "batch", 4, dtype="float64"),)
        ),
        verdict=failed(Stage.SOURCE, "output 'y' is declared float64, PyTorch gives float32"),
    ),
    Trap(
        name="float64 constant",
        story="it makes the output float64",
        spec=contract("outputs.py:Doubled"),
        verdict=failed(Stage.SOURCE, "output 'y' is declared float32, PyTorch gives float64"),
    ),
    Trap(
        name="float64 constant under dynamo",
        story="it makes the output float64",
        spec=contract("outputs.py:Doubled", DYNAMO),
        verdict=failed(Stage.SOURCE, "output 'y' is declared float32, PyTorch gives float64"),
    ),
    Trap(
        name="float64 constant inside",
        story="the result is cast back",
        spec=contract("outputs.py:DoubledInside"),
        verdict=SOUND,
    ),
    Trap(
        name="wrong size declared",
        story="5 columns are declared, 4 come out",
        spec=contract("values.py:ItemKept", outputs=(declare_output("y", "batch", 5),)),
        verdict=failed(Stage.SOURCE, "output 'y' is declared [batch, 5] with batch=3"),
    ),
    Trap(
        name="wrong rank declared",
        story="three dimensions are declared, two come out",
        spec=contract("values.py:ItemKept", outputs=(declare_output("y", "batch", 1, 4),)),
        verdict=failed(Stage.SOURCE, "output 'y' is declared [batch, 1, 4] with batch=3"),
    ),
    Trap(
        name="fixed axis declared dynamic",
        story="the output has 3 rows for every batch",
        spec=contract("outputs.py:Unconnected", DYNAMO),
        verdict=failed(Stage.SOURCE, "output 'y' is declared [batch, 4] with batch=7"),
    ),
    Trap(
        name="integers with floats",
        story="indices are equal, values are near",
        spec=contract(
            "outputs.py:Best",
            outputs=(
                declare_output("value", "batch", 2),
                declare_output("index", "batch", 2, dtype="int64"),
            ),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="truth values",
        story="bool comes in and goes out",
        spec=contract(
            "outputs.py:Mask",
            inputs=(
                declare_input(),
                declare_input("keep", at="args[1]", dtype="bool", fill=make_fill("bernoulli")),
            ),
            outputs=(
                declare_output("y", "batch", 4),
                declare_output("gone", "batch", 4, dtype="bool"),
            ),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="bytes",
        story="uint8 comes in",
        spec=contract(
            "outputs.py:Bytes",
            inputs=(declare_input(dtype="uint8", fill=make_fill("randint", low=0, high=256)),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="model that cannot be built",
        story="its constructor raises",
        spec=contract("sizes.py:Table"),
        verdict=refused(Stage.SOURCE, "missing a required argument: 'length'; change `init`"),
    ),
    Trap(
        name="training mode exported for evaluation",
        story="the option is EVAL, the contract is train",
        spec=contract("numbers.py:Normalised", 14, mode="train", options={"training": "EVAL"}),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="evaluation exported for training",
        story="the option is TRAINING, the contract is eval",
        spec=contract("numbers.py:Normalised", 14, options={"training": "TRAINING"}),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="BatchNorm in evaluation",
        story="running figures are in the file",
        spec=contract("numbers.py:Normalised"),
        verdict=SOUND,
    ),
)
