"""Traps: inputs and outputs of a model."""

from __future__ import annotations

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

_EXTRA = {"inputs": (declare_input(), declare_input("extra", at="args[1]"))}

_SIZED = {"outputs": (declare_output("y", "batch", 4), declare_output("n", dtype="int64"))}


def _pair(first: str, second: str) -> dict[str, object]:
    return {"outputs": (declare_output(first, "batch", 4), declare_output(second, "batch", 4))}


SIGNATURES = (
    *traps(
        "dict output",
        "its values in the order of its keys",
        "outputs.py:Dictionary",
        **_pair("double", "back"),
    ),
    Trap(
        "dict output in another order",
        "the keys are the declared names, and would each name the other's value",
        contract("outputs.py:Dictionary", **_pair("back", "double")),
        failed(Stage.SOURCE, "in another order"),
    ),
    Trap(
        "one key in another order",
        "the first key is the declared name of the second output",
        contract("outputs.py:Dictionary", **_pair("once", "double")),
        failed(Stage.SOURCE, "declares 'double' in another order"),
    ),
    Trap(
        "names of other keys",
        "no key is the declared name of another output",
        contract("outputs.py:Dictionary", **_pair("first", "second")),
    ),
    *traps(
        "inputs in another order",
        "whoever feeds the names of the model exchanges two inputs",
        "outputs.py:Difference",
        refused(Stage.SOURCE, 'add at = "kwargs.right"'),
        inputs=(declare_input("right"), declare_input("left", at="args[1]")),
        **_pair("a", "b"),
    ),
    Trap(
        "inputs in another order, each at its place",
        "the names are those of `forward`, and the order is that of the entry",
        contract(
            "outputs.py:Difference",
            inputs=(
                declare_input("right", at="kwargs.right"),
                declare_input("left", at="kwargs.left"),
            ),
            **_pair("a", "b"),
        ),
    ),
    Trap(
        "inputs with names of their own",
        "no name is that of another parameter",
        contract(
            "outputs.py:Difference",
            inputs=(declare_input("first"), declare_input("right", at="args[1]")),
            **_pair("a", "b"),
        ),
    ),
    Trap(
        "str output",
        "a str vanishes from a graph",
        contract("outputs.py:Text"),
        failed(Stage.SOURCE, "['kind']: str); only tensors"),
    ),
    Trap(
        "number output",
        "a constant of Python depends on no input, so the tracer has no value for it",
        contract("outputs.py:Number", **_SIZED),
        refused(Stage.CONVERT, "output 1 (7"),
    ),
    *traps(
        "size as a number output",
        "a size of Python is an int64 scalar of the graph",
        "outputs.py:Size",
        **_SIZED,
    ),
    Trap(
        "mapping of a class of the project",
        "its values in the order of its keys",
        contract("outputs.py:Results", DYNAMO, **_pair("double", "back")),
    ),
    *traps("None output", "None is no output, and the declared one is there", "outputs.py:Nothing"),
    Trap(
        "None output that was declared",
        "two are declared and one of them is None",
        contract("outputs.py:Nothing", **_pair("y", "cache")),
        failed(Stage.SOURCE, "the model returns 1 output ("),
    ),
    Trap(
        "nested outputs",
        "flattened in order",
        contract(
            "outputs.py:Nested",
            signature="x [batch, 4] -> a [batch, 4], b [batch, 4], c [batch, 4]",
        ),
    ),
    Trap(
        "named tuple",
        "flattened in order",
        contract("outputs.py:NamedPair", **_pair("first", "second")),
    ),
    Trap(
        "too few outputs declared",
        "a third output would ship unseen",
        contract("outputs.py:Nested", **_pair("a", "b")),
        failed(Stage.SOURCE, "the model returns 3 outputs"),
    ),
    Trap(
        "too many outputs declared",
        "a promised output does not exist",
        contract("values.py:ItemKept", **_pair("a", "b")),
        failed(Stage.SOURCE, "the model returns 1 output ("),
    ),
    *traps(
        "one tensor as two outputs",
        "both names have it",
        "outputs.py:SameOutputTwice",
        **_pair("a", "b"),
    ),
    Trap(
        "one tensor as two outputs under dynamo, not optimised",
        "torch gives both the last name",
        contract(
            "outputs.py:SameOutputTwice", DYNAMO, **_pair("a", "b"), options={"optimize": False}
        ),
    ),
    Trap(
        "input as an output under dynamo, not optimised",
        "torch gives the input the name of the output",
        contract(
            "outputs.py:PassThrough", DYNAMO, **_pair("copy", "double"), options={"optimize": False}
        ),
    ),
    Trap(
        "input as an output, with weights as inputs",
        "the graph is not optimised then",
        contract(
            "outputs.py:LayerAndInput",
            DYNAMO,
            **_pair("copy", "y"),
            options={"export_params": False},
        ),
    ),
    *traps(
        "input as an output",
        "the input keeps its name, the output has its own",
        "outputs.py:PassThrough",
        **_pair("copy", "double"),
    ),
    Trap(
        "ignored input",
        "TorchScript drops an input that nothing uses",
        contract("outputs.py:Ignores", **_EXTRA),
        structure("signature", "the file has 1 (x), declared 2 (x, extra)"),
    ),
    Trap(
        "ignored input under dynamo",
        "dynamo keeps it only in the list",
        contract("outputs.py:Ignores", DYNAMO, **_EXTRA),
        structure("signature", "the graph ignores input 'extra'"),
    ),
    Trap(
        "inputs swapped in the contract",
        "declared the other way round: they are then each other's",
        contract(
            "outputs.py:Difference",
            inputs=(declare_input("left", at="args[1]"), declare_input("right", at="args[0]")),
            **_pair("a", "b"),
        ),
    ),
    Trap(
        "wrong dtype declared",
        "float64 is declared, float32 comes out",
        contract("values.py:ItemKept", signature="x [batch, 4] -> y float64 [batch, 4]"),
        failed(Stage.SOURCE, "output 'y' is declared float64, PyTorch gives float32"),
    ),
    *traps(
        "float64 constant",
        "it makes the output float64",
        "outputs.py:Doubled",
        failed(Stage.SOURCE, "output 'y' is declared float32, PyTorch gives float64"),
    ),
    Trap(
        "float64 constant inside", "the result is cast back", contract("outputs.py:DoubledInside")
    ),
    Trap(
        "wrong size declared",
        "5 columns are declared, 4 come out",
        contract("values.py:ItemKept", signature="x [batch, 4] -> y [batch, 5]"),
        failed(Stage.SOURCE, "output 'y' is declared [batch, 5] with batch=3"),
    ),
    Trap(
        "wrong rank declared",
        "three dimensions are declared, two come out",
        contract("values.py:ItemKept", signature="x [batch, 4] -> y [batch, 1, 4]"),
        failed(Stage.SOURCE, "output 'y' is declared [batch, 1, 4] with batch=3"),
    ),
    Trap(
        "fixed axis declared dynamic",
        "the output has 3 rows for every batch",
        contract("outputs.py:Unconnected", DYNAMO),
        failed(Stage.SOURCE, "output 'y' is declared [batch, 4] with batch=7"),
    ),
    Trap(
        "integers with floats",
        "indices are equal, values are near",
        contract(
            "outputs.py:Best", signature="x [batch, 4] -> value [batch, 2], index int64 [batch, 2]"
        ),
    ),
    Trap(
        "truth values",
        "bool comes in and goes out",
        contract(
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
    ),
    Trap(
        "bytes",
        "uint8 comes in",
        contract(
            "outputs.py:Bytes",
            inputs=(declare_input(dtype="uint8", fill=make_fill("randint", low=0, high=256)),),
        ),
    ),
    Trap(
        "model that cannot be built",
        "its constructor raises",
        contract("sizes.py:Table"),
        refused(Stage.SOURCE, "missing a required argument: 'length'; change `init`"),
    ),
    Trap(
        "training mode exported for evaluation",
        "the option is EVAL, the contract is train",
        contract("numbers.py:Normalised", 14, mode="train", options={"training": "EVAL"}),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "evaluation exported for training",
        "the option is TRAINING, the contract is eval",
        contract("numbers.py:Normalised", 14, options={"training": "TRAINING"}),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "BatchNorm in evaluation",
        "running figures are in the file",
        contract("numbers.py:Normalised"),
    ),
)
