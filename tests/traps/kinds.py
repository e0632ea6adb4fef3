"""Traps: half precision, complex numbers, lists of tensors, tensors without elements."""

from __future__ import annotations

import numpy as np

from exporter.manifest import ModelSpec, Output
from exporter.records.record import Stage
from tests.traps import edits, lists
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
    declare_input,
    declare_output,
    failed,
    inconclusive,
    parity,
    refused,
    structure,
)


def _picture(precision: str, opset: int) -> ModelSpec:
    return contract(
        "files.py:Picture",
        opset,
        precision=precision,
        inputs=(declare_input("x", "batch", 2, 6, 6, dtype=precision),),
        outputs=(declare_output("y", "batch", 3, dtype=precision),),
    )


def _half(
    name: str, story: str, how: Tamper | None, verdict: Verdict = OFF, opset: int = TORCHSCRIPT
) -> Trap:
    return Trap(f"float16: {name}", story, _picture("float16", opset), verdict, tamper=how)


def _beyond(by: float) -> ModelSpec:
    return contract(
        "kinds.py:Beyond",
        DYNAMO,
        "x float16 [batch, 4] -> y float16 [batch, 4]",
        init={"by": by},
        precision="float16",
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
        "float16: all beyond its range",
        "Inf on both sides compares nothing",
        _beyond(1e3),
        inconclusive("power", "has no number but 0: float16 overflows in PyTorch: "),
    ),
    Trap(
        "float16: some beyond its range",
        "Inf in the same places, as PyTorch has it; the record notes it",
        _beyond(200.0),
    ),
    Trap(
        "float64 without a kernel",
        "ONNX Runtime has no Conv in float64 on the CPU",
        _picture("float64", TORCHSCRIPT),
        refused(Stage.LOAD, "CPUExecutionProvider has no kernel for Conv in float64"),
    ),
)

_ROTATED = contract(
    "kinds.py:Rotated", DYNAMO, "z complex64 [batch, 4] -> w complex64 [batch, 4], size [batch, 4]"
)
_SPECTRUM = contract("kinds.py:Spectrum", DYNAMO, "x [batch, 4] -> y complex64 [batch, 4]")


def _complex(
    name: str, story: str, how: Tamper | None, verdict: Verdict, **changes: object
) -> Trap:
    return Trap(f"complex: {name}", story, _ROTATED.model_copy(update=changes), verdict, tamper=how)


_COMPLEX = (
    _complex("in and out", "the file has pairs of float32 in a last dimension", None, SOUND),
    Trap("complex: output only", "a Fourier transform", _SPECTRUM),
    _complex(
        "product of parts",
        "the product of the imaginary parts is added to the real part",
        tamper.replace("Sub", "Add"),
        parity("parity", "output 'w': error"),
    ),
    _complex(
        "not conjugated",
        "the imaginary part has the other sign",
        tamper.after("w", "Mul", np.array([1, -1], np.float32)),
        parity("parity", "output 'w': error"),
    ),
    _complex(
        "declared as pairs",
        "the model returns complex numbers, as the contract declares",
        None,
        failed(Stage.SOURCE, "output 'w' is complex64, declared float32"),
        outputs=(declare_output("w", "batch", 4, 2), declare_output("size", "batch", 4)),
    ),
    _complex(
        "real output declared complex",
        "the magnitude has no imaginary part",
        None,
        failed(Stage.SOURCE, "output 'size' is float32, declared complex64"),
        outputs=(
            declare_output("w", "batch", 4, dtype="complex64"),
            declare_output("size", "batch", 4, dtype="complex64"),
        ),
    ),
    _complex(
        "under TorchScript",
        "its exporter knows none",
        None,
        refused(Stage.CONVERT, "TorchScript exports no complex numbers: input 'z' is complex64"),
        opsets=(TORCHSCRIPT,),
    ),
)

_CACHED = contract(
    "kinds.py:Cached", signature="x [batch, 4], past [batch, 0] -> y [batch, 4], kept [batch, 0]"
)

_EMPTY = (
    Trap("no elements: in and out", "a cache at its first step: a fixed size of 0", _CACHED),
    Trap(
        "no elements: in and out, under dynamo",
        "the same at opset 18",
        _CACHED.model_copy(update={"opsets": (DYNAMO,)}),
    ),
    Trap(
        "no elements: in the file one",
        "the cache comes out with one column",
        _CACHED,
        structure("wellformed", "existing shape differ in dimension 1: (1) vs (0)"),
        tamper=tamper.after("kept", "Pad", np.array([0, 0, 0, 1])),
    ),
    Trap(
        "no elements: in the file one, unseen by ONNX",
        "by a shape that ONNX does not infer",
        _CACHED,
        parity("parity", "output 'kept': shape [3, 1], PyTorch gives [3, 0]"),
        tamper=tamper.edited(edits.column_where_none_is),
    ),
    Trap(
        "no elements: none anywhere",
        "nothing is compared",
        contract("kinds.py:Nothing", signature="x [batch, 4] -> y [batch, 0]"),
        inconclusive("power", "no output has an element"),
    ),
)


def _sequence(name: str, *shape: int | str, dtype: str = "float32") -> Output:
    return Output(name=name, shape=shape, dtype=dtype, kind="sequence")


def _scripted(net: str, *outputs: Output, **changes: object) -> ModelSpec:
    return contract(f"kinds.py:{net}", capture="script", outputs=outputs, **changes)


_PIECES = _scripted("Pieces", _sequence("pieces", 4), declare_output("total", 4))


def _list(
    name: str, story: str, how: Tamper | None, verdict: Verdict, spec: ModelSpec = _PIECES
) -> Trap:
    return Trap(f"list: {name}", story, spec, verdict, tamper=how)


_LISTS = (
    _list("as many items as rows", "built in a loop of a script", None, SOUND),
    _list(
        "items of another size each",
        "along an axis that only the list has",
        None,
        SOUND,
        _scripted("Growing", _sequence("pieces", "k", 4)),
    ),
    _list(
        "by a split",
        "each item has the batch",
        None,
        SOUND,
        _scripted("Halves", _sequence("halves", "batch", 2)),
    ),
    _list(
        "of integers",
        "each item must be equal",
        None,
        SOUND,
        _scripted("Labels", _sequence("labels", "batch", dtype="int64")),
    ),
    _list(
        "an item missing",
        "the last one is left out",
        tamper.edited(lists.last_left_out),
        parity("parity", "output 'pieces': 2 items, PyTorch gives 3"),
    ),
    _list(
        "another order",
        "the last item comes first",
        tamper.edited(lists.last_first),
        parity("parity", "item 0 of output 'pieces': error"),
    ),
    _list(
        "one item off",
        "the last one by a thousandth",
        tamper.edited(lists.last_off),
        parity("parity", "item 2 of output 'pieces': error 1.00e-03"),
    ),
    _list(
        "as many items as in the example",
        "three for every batch",
        tamper.edited(lists.three_items),
        parity("axes", "batch=7: output 'pieces': 3 items, PyTorch gives 7"),
    ),
    _list(
        "items of another dtype",
        "float64, in the signature too",
        tamper.edited(lists.of_another_dtype),
        structure("signature", "each item of output 'pieces' is float64, declared float32"),
    ),
    _list(
        "items of another size",
        "only in the signature",
        tamper.edited(lists.items_of_three),
        structure("signature", "dimension 0 of each item of output 'pieces' is 3, declared 4"),
    ),
    _list(
        "a tensor for the list",
        "only the first item",
        tamper.edited(lists.first_alone),
        structure("signature", "output 'pieces' is not a sequence but tensor"),
    ),
    _list(
        "declared as tensors",
        "a script puts out one list, not its items",
        None,
        failed(Stage.SOURCE, "a list of tensors is declared with kind = 'sequence' (halves)"),
        _scripted("Halves", declare_output("halves", "batch", 2)),
    ),
    _list(
        "declared as two tensors",
        "a trace would put out two, a script puts out one list",
        None,
        failed(
            Stage.SOURCE, "the entry declares 2 (left, right), and a list as one output has kind"
        ),
        _scripted(
            "Halves", declare_output("left", "batch", 2), declare_output("right", "batch", 2)
        ),
    ),
    _list(
        "a tensor declared as a list",
        "the sum is no list",
        None,
        failed(Stage.SOURCE, "declared as a sequence, but not a list: total"),
        _scripted("Pieces", _sequence("pieces", 4), _sequence("total", 4)),
    ),
    _list(
        "items of one declared size that are not",
        "the items grow",
        None,
        failed(Stage.SOURCE, "item 0 of output 'pieces' is declared [batch, 4] with batch=3"),
        _scripted("Growing", _sequence("pieces", "batch", 4)),
    ),
    Trap(
        "list: traced",
        "a trace puts out each item by itself",
        contract("kinds.py:Halves", signature="x [batch, 4] -> left [batch, 2], right [batch, 2]"),
    ),
    Trap(
        "list: traced, declared as one tensor",
        "the message shows how to declare a list",
        contract("kinds.py:Halves", signature="x [batch, 4] -> halves [batch, 2]"),
        failed(Stage.SOURCE, "a list as one output has kind = 'sequence'"),
    ),
)

KINDS = (*_HALF, *_COMPLEX, *_EMPTY, *_LISTS)
