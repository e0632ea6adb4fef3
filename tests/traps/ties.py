"""Traps: ties of selected indices, and operators that PyTorch computes exactly."""

from __future__ import annotations

from exporter.manifest import Axis, ModelSpec
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
    parity,
)

_INDICES = declare_output("indices", "batch", 3, dtype="int64")
_TOP = (declare_output("values", "batch", 3), _INDICES)
_LABELS = (declare_output("label", "batch", dtype="int64"),)


def _tie(name: str, story: str, spec: ModelSpec, verdict: Verdict = SOUND) -> Trap:
    return Trap(name, story, spec, verdict)


def _contract(
    net: str, outputs: tuple[object, ...], opset: int = TORCHSCRIPT, width: int = 64
) -> ModelSpec:
    inputs = (declare_input("x", "batch", width),)
    axes = (Axis(name="batch", example=40),)
    return contract(f"ties.py:{net}", opset, inputs=inputs, outputs=outputs, axes=axes)


def _long(net: str, count: int, *output: int | str, opset: int = TORCHSCRIPT) -> ModelSpec:
    return contract(
        f"ties.py:{net}",
        opset,
        inputs=(declare_input("x", "batch", count, fill=make_fill("uniform", low=0.0, high=1.0)),),
        outputs=(declare_output("y", *output),),
    )


TIES = (
    _tie(
        "topk of equal values",
        "PyTorch promises no order, ONNX selects the lower index first",
        _contract("TopTied", _TOP),
    ),
    _tie(
        "topk of equal values under dynamo",
        "the same file by the other exporter",
        _contract("TopTied", _TOP, DYNAMO),
    ),
    _tie(
        "topk of other values",
        "the indices select smaller values",
        _contract("TopWrong", _TOP),
        parity("parity", "output 'indices'"),
    ),
    _tie(
        "topk that repeats an index",
        "all values are equal, but three indices are one",
        _contract("TopRepeated", _TOP),
        parity("parity", "output 'indices'"),
    ),
    _tie(
        "values at the indices of equal values",
        "another order of ties gives other values",
        _contract("TopGathered", (declare_output("y", "batch", 3),)),
    ),
    _tie(
        "order of equal values",
        "moved and cast indices are indices",
        _contract("SortTied", (declare_output("order", 64, "batch", dtype="int32"),)),
    ),
    _tie(
        "label of two sums that differ by rounding",
        "either label selects the largest logit within rounding",
        _contract("LabelTied", _LABELS, width=500),
    ),
    _tie(
        "label of two sums that differ by more",
        "the file selects a smaller logit",
        _contract("LabelWrong", _LABELS, width=500),
        parity("parity", "output 'label'"),
    ),
    _tie(
        "first position of a token",
        "PyTorch promises the first of equal values",
        _contract("FirstToken", _LABELS),
    ),
    _tie(
        "last position of a token",
        "all positions have the same value, but the first one is promised",
        _contract("LastToken", _LABELS),
        parity("parity", "output 'label'"),
    ),
    _tie(
        "cumulative sum of 20,000 elements",
        "PyTorch adds in float64, a runtime in float32",
        _long("LongSum", 20_000, "batch", 20_000),
    ),
    _tie(
        "cumulative sum that is wrong",
        "0.02 % more than the sum",
        _long("LongSumWrong", 20_000, "batch", 20_000),
        parity("parity", "output 'y': error"),
    ),
    _tie(
        "Fourier transform",
        "60 points, which ONNX Runtime computes less exactly",
        _long("Spectrum", 60, "batch", 60, 2, opset=DYNAMO),
    ),
    _tie(
        "Fourier transform that is wrong",
        "0.005 % more than the transform",
        _long("SpectrumWrong", 60, "batch", 60, 2, opset=DYNAMO),
        parity("parity", "output 'y': error"),
    ),
    _tie(
        "row of a table for one of two near sums",
        "either row is right, and no index is an output",
        _contract("NearRows", (declare_output("y", "batch", 4),), width=500),
    ),
    _tie(
        "row of a table for a smaller sum",
        "the file selects neither of the near sums",
        _contract("NearRowsWrong", (declare_output("y", "batch", 4),), width=500),
        inconclusive("parity", "output 'y': error"),
    ),
    _tie(
        "threshold within rounding",
        "two orders of one sum, of which either may be larger",
        _contract("NearBins", (declare_output("y", "batch", 1, dtype="int64"),), width=500),
    ),
    _tie(
        "threshold that is another one",
        "one threshold is within rounding, and the other one is wrong",
        _contract("NearBinsWrong", (declare_output("y", "batch", 1, dtype="int64"),), width=500),
        parity("parity", "output 'y'"),
    ),
)
