"""Traps: models that differ between two calls, and models that write into their inputs.

Output: `STATES`.
"""

from __future__ import annotations

from exporter.manifest import Axis
from exporter.records.record import Stage
from tests.traps.attempts import ATTEMPTS
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    Trap,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
    parity,
    refused,
    structure,
)

_TWO = {"inputs": (declare_input("left"), declare_input("right", at="args[1]"))}
_INDEX = declare_input(
    "index", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=-1)
)
_INDICES = declare_input("index", at="args[1]", shape=(2,), dtype="int64", fill=make_fill("arange"))
_WITH_BUFFER = (declare_output("y", "batch", 4), declare_output("mean", 4))


def _pair(first: str, second: str) -> dict[str, object]:
    return {"outputs": (declare_output(first, "batch", 4), declare_output(second, "batch", 4))}


STATES = (
    Trap(
        name="dropout left on",
        story="mode = 'train' keeps dropout on",
        spec=contract("numbers.py:Dropped", mode="train"),
        verdict=inconclusive("determinism", "mode is 'train'"),
    ),
    Trap(
        name="dropout off",
        story="in evaluation a dropout layer does nothing",
        spec=contract("numbers.py:Dropped"),
        verdict=SOUND,
    ),
    Trap(
        name="dropout by a function",
        story="on in evaluation too, by default",
        spec=contract("numbers.py:AlwaysDropped"),
        verdict=inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        name="torch.rand in forward",
        story="PyTorch gives two answers to one question",
        spec=contract("numbers.py:Noisy"),
        verdict=inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        name="torch.rand in forward under dynamo",
        story="PyTorch gives two answers to one question",
        spec=contract("numbers.py:Noisy", DYNAMO),
        verdict=inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        name="seeded torch.rand in forward",
        story="PyTorch draws the same numbers each time, the file draws others",
        spec=contract("numbers.py:SeededNoise"),
        verdict=inconclusive("parity", "noise = 8"),
    ),
    Trap(
        name="layer made in forward",
        story="its weights are drawn in the graph, for which ONNX has no initialisation",
        spec=contract("numbers.py:FreshWeights"),
        verdict=refused(Stage.CONVERT, "aten::uniform"),
    ),
    Trap(
        name="BatchNorm in training mode",
        story="the batch's own figures, and no output follows the running ones",
        spec=contract(
            "numbers.py:Normalised", 14, mode="train", axes=(Axis(name="batch", example=3, min=2),)
        ),
        verdict=SOUND,
    ),
    Trap(
        name="BatchNorm in training mode under dynamo",
        story="torch folds it into the layer before it, with the running figures",
        spec=contract(
            "buffers.py:NormalisedLinear",
            DYNAMO,
            mode="train",
            axes=(Axis(name="batch", example=3, min=2),),
        ),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="buffer that is written and returned",
        story="the output is the buffer itself, which every other call writes into",
        spec=contract("buffers.py:ReturnsBuffer", DYNAMO, outputs=_WITH_BUFFER),
        verdict=SOUND,
    ),
    Trap(
        name="buffer that keeps the result of a layer",
        story="with gradients, torch's tracer takes the buffer for a parameter and fails",
        spec=contract("buffers.py:WritesLayer"),
        verdict=SOUND,
    ),
    Trap(
        name="buffer that is written by .data and returned",
        story="a trace does not see the write, and keeps the value of the example",
        spec=contract("buffers.py:ReturnsBuffer", init={"by_data": True}, outputs=_WITH_BUFFER),
        verdict=parity("axes", "output 'mean': error"),
    ),
    Trap(
        name="buffer that counts calls and is returned",
        story="the first answer is 1 and the second 2, in one and the same tensor",
        spec=contract("buffers.py:ReturnsCounter", DYNAMO, outputs=_WITH_BUFFER),
        verdict=inconclusive("determinism", "keeps state in its buffers"),
    ),
    Trap(
        name="buffer that is replaced in each call",
        story="each call puts another tensor in its place",
        spec=contract("buffers.py:ReplacesBuffer"),
        verdict=inconclusive("determinism", "keeps state in its buffers"),
    ),
    Trap(
        name="buffer that counts calls",
        story="the second call gives another answer; a file has no second call",
        spec=contract("numbers.py:CallCounter"),
        verdict=inconclusive("determinism", "keeps state"),
    ),
    Trap(
        name="buffer that counts calls under dynamo",
        story="the second call gives another answer; a file has no second call",
        spec=contract("numbers.py:CallCounter", DYNAMO),
        verdict=inconclusive("determinism", "keeps state"),
    ),
    Trap(
        name="buffer that no output follows",
        story="a counter that only counts",
        spec=contract("numbers.py:QuietCounter"),
        verdict=SOUND,
    ),
    Trap(
        name="attribute that counts calls",
        story="the same without a buffer",
        spec=contract("numbers.py:PythonCounter"),
        verdict=inconclusive("determinism", "PyTorch differs from itself"),
    ),
    Trap(
        name="value kept from the first call",
        story="every later answer depends on which input came first",
        spec=contract("numbers.py:Remembers"),
        verdict=inconclusive("determinism", "depend on earlier calls, which change the attribute"),
    ),
    Trap(
        name="table made in the first call",
        story="the same table after every first call",
        spec=contract("numbers.py:CachedTable"),
        verdict=SOUND,
    ),
    Trap(
        name="caller's input changed in place",
        story="the outputs are right; a changed input of PyTorch is no output",
        spec=contract("numbers.py:WritesInput"),
        verdict=SOUND,
    ),
    Trap(
        name="caller's input changed in place under dynamo",
        story="the outputs are right; a changed input of PyTorch is no output",
        spec=contract("numbers.py:WritesInput", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="write through a view",
        story="TorchScript loses a write into a view",
        spec=contract("numbers.py:WritesView"),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="write through a view under dynamo",
        story="torch.export makes it functional",
        spec=contract("numbers.py:WritesView", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="write to a column",
        story="a slice that is overwritten",
        spec=contract("numbers.py:WritesSlice"),
        verdict=SOUND,
    ),
    Trap(
        name="index write below opset 11",
        story="ScatterND came with 11",
        spec=contract("numbers.py:WritesAt", 10, inputs=(declare_input(), _INDICES)),
        verdict=refused(Stage.CONVERT, "index_put"),
    ),
    Trap(
        name="index write",
        story="columns by an index that is an input",
        spec=contract("numbers.py:WritesAt", 11, inputs=(declare_input(), _INDICES)),
        verdict=SOUND,
    ),
    Trap(
        name="index write after an ellipsis",
        story="TorchScript writes a node without its first input, and returns normally",
        spec=contract("numbers.py:WritesEllipsis", 11, inputs=(declare_input(), _INDICES)),
        verdict=structure("wellformed", ""),
        repaired=(2, 15),
    ),
    Trap(
        name="negative index",
        story="an index that counts from the end",
        spec=contract(
            "numbers.py:ReadsAt",
            11,
            inputs=(declare_input(), _INDEX),
            outputs=(declare_output("y", "batch"),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="negative index below opset 11",
        story="Gather of opset 9 promises nothing for it",
        spec=contract(
            "numbers.py:ReadsAt",
            9,
            inputs=(declare_input(), _INDEX),
            outputs=(declare_output("y", "batch"),),
        ),
        verdict=SOUND,
    ),
    Trap(
        name="last column",
        story="a slice that starts at -1",
        spec=contract("numbers.py:ReadsLast", 9),
        verdict=SOUND,
    ),
    Trap(
        name="two inputs",
        story="each matters, and their effects differ",
        spec=contract("outputs.py:Difference", **_TWO, **_pair("a", "b")),
        verdict=SOUND,
    ),
    *ATTEMPTS,
)
