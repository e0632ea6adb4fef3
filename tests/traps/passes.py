"""Traps: passes after the export."""

from __future__ import annotations

from dataclasses import replace

from exporter.manifest import Comparator, FilePass
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
    refused,
    structure,
)

_FILE = "tests/traps/models/passes.py"


def _pass(
    name: str,
    story: str,
    calls: tuple[str, ...],
    verdict: Verdict = SOUND,
    compare: dict[str, object] | None = None,
    opset: int = DYNAMO,
    **arguments: float,
) -> Trap:
    """Return a trap; the arguments are those of the last pass."""
    last = len(calls) - 1
    output = declare_output("y", "batch", 5)
    if compare:
        output = output.model_copy(update={"compare": Comparator.model_validate(compare)})
    spec = contract(
        "passes.py:Net",
        opset,
        inputs=(declare_input("x", "batch", 3, 8, 8, fill=make_fill("uniform")),),
        outputs=(output,),
        passes=tuple(
            FilePass(call=f"{_FILE}:{call}", arguments=dict(arguments) if index == last else {})
            for index, call in enumerate(calls)
        ),
    )
    return Trap(name, story, spec, verdict)


def _with_metadata(trap: Trap) -> Trap:
    """Return a trap whose file promises a text for programs."""
    return replace(trap, spec=trap.spec.model_copy(update={"metadata": {"rate": "16000"}}))


_BROKEN = "pass 2 of 3 (tests/traps/models/passes.py:{}) breaks the file"

PASSES = (
    _pass("pass: names of nodes", "no runtime reads them", ("rename_nodes",)),
    _pass("pass: names of nodes under TorchScript", "no runtime reads them", ("rename_nodes",),
          opset=TORCHSCRIPT),
    _pass("pass: external data", "the weights are in a file of the pass", ("move_weights",)),
    _pass("pass: a factor of 1", "the same weights again", ("scale",), factor=1.0),
    _pass(
        "pass: a factor of 1.001",
        "a weight has another value",
        ("scale",),
        parity("parity", "pass 1 of 1"),
        factor=1.001,
    ),
    _pass(
        "pass: an operator left out",
        "a simplifier removes Relu",
        ("same", "drop_relu", "same"),
        parity("parity", _BROKEN.format("drop_relu")),
    ),
    _pass(
        "pass: a fixed batch",
        "the file runs at the exported size only",
        ("same", "freeze_batch", "same"),
        parity("axes", _BROKEN.format("freeze_batch")),
    ),
    _pass(
        "pass: another name",
        "the output has another name",
        ("same", "rename_output", "same"),
        structure("signature", _BROKEN.format("rename_output")),
    ),
    _with_metadata(_pass("pass: metadata kept", "an edit of the graph", ("rename_nodes",))),
    _with_metadata(
        _pass(
            "pass: metadata lost",
            "a pass makes a new model of the graph",
            ("same", "lose_metadata", "same"),
            structure("metadata", _BROKEN.format("lose_metadata")),
        )
    ),
    _pass(
        "pass: another opset",
        "a converter writes opset 19",
        ("raise_opset",),
        structure("opset", "pass 1 of 1"),
    ),
    _pass(
        "pass: float16 by cosine", "a comparator for half precision", ("to_float16",),
        compare={"cosine": 0.999},
    ),
    _pass(
        "pass: float16 by the measured tolerance",
        "half precision cannot keep a tolerance of float32",
        ("to_float16",),
        parity("parity", "pass 1 of 1"),
    ),
    _pass(
        "pass: int8 with the ranges of the samples", "static quantization", ("quantize",),
        compare={"sqnr": 20.0},
    ),
    _pass(
        "pass: int8 with wrong ranges",
        "the calibration has inputs that are ten times smaller",
        ("quantize",),
        parity("parity", "at least 20 dB are promised"),
        compare={"sqnr": 20.0},
        factor=0.1,
    ),
    _pass(
        "pass: no file", "the pass writes nothing", ("nothing",),
        refused(Stage.CONVERT, "writes nothing; write the file to the path `target`"),
    ),
    _pass(
        "pass: another file", "the pass chooses a name", ("beside",),
        refused(Stage.CONVERT, "writes model.onnx in place of its target"),
    ),
    _pass(
        "pass: no ONNX file", "the pass writes text", ("text",),
        refused(Stage.CONVERT, "writes an invalid file: 18.onnx: is not an ONNX file"),
    ),
    _pass(
        "pass: forgotten weights",
        "the second pass copies the file without its external data",
        ("move_weights", "same"),
        refused(Stage.CONVERT, "pass 2 of 2 (tests/traps/models/passes.py:same): writes an inv"),
    ),
    _pass(
        "pass: lost weights", "the external data is missing", ("lose_weights",),
        refused(Stage.CONVERT, "external data 'own.bin' is missing"),
    ),
    _pass(
        "pass: an exception", "the second pass raises", ("same", "failing"),
        refused(Stage.CONVERT, "pass 2 of 2 (tests/traps/models/passes.py:failing): raises Value"),
    ),
    _pass(
        "pass: a changed source", "the pass writes to the file that it reads", ("in_place",),
        refused(Stage.CONVERT, "changes the file `source`"),
    ),
)  # fmt: skip
