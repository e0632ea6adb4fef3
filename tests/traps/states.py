"""Traps: models that differ between two calls, and models that write into their inputs."""

from __future__ import annotations

from exporter.manifest import Axis
from exporter.records.record import Stage
from tests.traps.attempts import ATTEMPTS
from tests.traps.trap import (
    DYNAMO,
    Trap,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
    parity,
    refused,
    structure,
    traps,
)

_TWO = {"inputs": (declare_input("left"), declare_input("right", at="args[1]"))}
_INDEX = declare_input(
    "index", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=-1)
)
_INDICES = declare_input("index", at="args[1]", shape=(2,), dtype="int64", fill=make_fill("arange"))


def _pair(first: str, second: str) -> dict[str, object]:
    return {"outputs": (declare_output(first, "batch", 4), declare_output(second, "batch", 4))}


STATES = (
    Trap(
        "dropout left on",
        "mode = 'train' keeps dropout on",
        contract("numbers.py:Dropped", mode="train"),
        inconclusive("determinism", "mode is 'train'"),
    ),
    Trap(
        "dropout off", "in evaluation a dropout layer does nothing", contract("numbers.py:Dropped")
    ),
    Trap(
        "dropout by a function",
        "on in evaluation too, by default",
        contract("numbers.py:AlwaysDropped"),
        inconclusive("determinism", "PyTorch differs from itself"),
    ),
    *traps(
        "torch.rand in forward",
        "PyTorch gives two answers to one question",
        "numbers.py:Noisy",
        inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        "seeded torch.rand in forward",
        "PyTorch draws the same numbers each time, the file draws others",
        contract("numbers.py:SeededNoise"),
        inconclusive("parity", "PyTorch gives other values in float64: it draws numbers"),
    ),
    Trap(
        "layer made in forward",
        "its weights are drawn in the graph, for which ONNX has no initialisation",
        contract("numbers.py:FreshWeights"),
        refused(Stage.CONVERT, "aten::uniform"),
    ),
    Trap(
        "BatchNorm in training mode",
        "the batch's own figures, and no output follows the running ones",
        contract(
            "numbers.py:Normalised", 14, mode="train", axes=(Axis(name="batch", example=3, min=2),)
        ),
    ),
    Trap(
        "BatchNorm in training mode under dynamo",
        "torch folds it into the layer before it, with the running figures",
        contract(
            "buffers.py:NormalisedLinear",
            DYNAMO,
            mode="train",
            axes=(Axis(name="batch", example=3, min=2),),
        ),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "buffer that is written and returned",
        "the output is the buffer itself, which every other call writes into",
        contract("buffers.py:ReturnsBuffer", DYNAMO, "x [batch, 4] -> y [batch, 4], mean [4]"),
    ),
    Trap(
        "buffer that keeps the result of a layer",
        "with gradients, torch's tracer takes the buffer for a parameter and fails",
        contract("buffers.py:WritesLayer"),
    ),
    Trap(
        "buffer that is written by .data and returned",
        "a trace does not see the write, and keeps the value of the example",
        contract(
            "buffers.py:ReturnsBuffer",
            signature="x [batch, 4] -> y [batch, 4], mean [4]",
            init={"by_data": True},
        ),
        parity("axes", "output 'mean': error"),
    ),
    Trap(
        "buffer that counts calls and is returned",
        "the first answer is 1 and the second 2, in one and the same tensor",
        contract("buffers.py:ReturnsCounter", DYNAMO, "x [batch, 4] -> y [batch, 4], mean [4]"),
        inconclusive("determinism", "keeps state in its buffers"),
    ),
    Trap(
        "buffer that is replaced in each call",
        "each call puts another tensor in its place",
        contract("buffers.py:ReplacesBuffer"),
        inconclusive("determinism", "keeps state in its buffers"),
    ),
    *traps(
        "buffer that counts calls",
        "the second call gives another answer; a file has no second call",
        "numbers.py:CallCounter",
        inconclusive("determinism", "keeps state"),
    ),
    Trap(
        "buffer that no output follows",
        "a counter that only counts",
        contract("numbers.py:QuietCounter"),
    ),
    Trap(
        "attribute that counts calls",
        "the same without a buffer",
        contract("numbers.py:PythonCounter"),
        inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        "value kept from the first call",
        "every later answer depends on which input came first",
        contract("numbers.py:Remembers"),
        inconclusive("determinism", "depend on earlier calls, which change the attribute"),
    ),
    Trap(
        "table made in the first call",
        "the same table after every first call",
        contract("numbers.py:CachedTable"),
    ),
    *traps(
        "caller's input changed in place",
        "the outputs are right; a changed input of PyTorch is no output",
        "numbers.py:WritesInput",
    ),
    Trap(
        "write through a view",
        "TorchScript loses a write into a view",
        contract("numbers.py:WritesView"),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "write through a view under dynamo",
        "torch.export makes it functional",
        contract("numbers.py:WritesView", DYNAMO),
    ),
    Trap("write to a column", "a slice that is overwritten", contract("numbers.py:WritesSlice")),
    Trap(
        "index write below opset 11",
        "ScatterND came with 11",
        contract("numbers.py:WritesAt", 10, inputs=(declare_input(), _INDICES)),
        refused(Stage.CONVERT, "index_put"),
    ),
    Trap(
        "index write",
        "columns by an index that is an input",
        contract("numbers.py:WritesAt", 11, inputs=(declare_input(), _INDICES)),
    ),
    Trap(
        "index write after an ellipsis",
        "TorchScript writes a node without its first input, and returns normally",
        contract("numbers.py:WritesEllipsis", 11, inputs=(declare_input(), _INDICES)),
        structure("wellformed", ""),
        repaired=(2, 15),
    ),
    Trap(
        "negative index",
        "an index that counts from the end",
        contract(
            "numbers.py:ReadsAt",
            11,
            inputs=(declare_input(), _INDEX),
            outputs=(declare_output("y", "batch"),),
        ),
    ),
    Trap(
        "negative index below opset 11",
        "Gather of opset 9 promises nothing for it",
        contract(
            "numbers.py:ReadsAt",
            9,
            inputs=(declare_input(), _INDEX),
            outputs=(declare_output("y", "batch"),),
        ),
    ),
    Trap("last column", "a slice that starts at -1", contract("numbers.py:ReadsLast", 9)),
    Trap(
        "two inputs",
        "each matters, and their effects differ",
        contract("outputs.py:Difference", **_TWO, **_pair("a", "b")),
    ),
    *ATTEMPTS,
)
