"""Traps: axes that other axes determine, and sizes that the exporter writes as expressions."""

from __future__ import annotations

from exporter.manifest import Axis
from exporter.manifest.resolved.call import SizeRule
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    Trap,
    contract,
    declare,
    declare_input,
    declare_output,
    failed,
    parity,
    structure,
)

_CACHE: dict[str, object] = declare(
    "x [batch, seq, 4], past [batch, past, 4], mask [batch, total]"
    " -> y [batch, seq, 4], keys [batch, total, 4]"
) | {
    "axes": (
        Axis(name="batch", example=7),
        Axis(name="seq", example=5),
        Axis(name="past", example=3, min=0),
        Axis(name="total", example=8, rule=SizeRule(kind="sum", operands=("past", "seq"))),
    )
}


def _halved(kernel: int) -> dict[str, object]:
    rule = SizeRule(kind="window", operands=("length",), stride=2, kernel=kernel)
    length = 8  # even: at the example, both windows give 4
    return {
        "inputs": (declare_input("x", "batch", 4, "length"),),
        "outputs": (declare_output("y", "batch", 4, "half"),),
        "axes": (
            Axis(name="batch", example=5),
            Axis(name="length", example=length, min=2),
            Axis(name="half", example=length // 2, rule=rule),
        ),
    }


def _ends(smallest: int) -> dict[str, object]:
    return {
        "inputs": (declare_input("x", "batch", "rows", 4),),
        "outputs": (declare_output("y", "batch", 8, 4),),
        "axes": (Axis(name="batch", example=3), Axis(name="rows", example=5, min=smallest)),
    }


def _window(largest: int) -> dict[str, object]:
    return {
        "inputs": (declare_input("x", "batch", "rows", 4),),
        "outputs": (declare_output("y", "batch", 4),),
        "axes": (Axis(name="batch", example=3), Axis(name="rows", example=5, max=largest)),
    }


DERIVED_AXES = (
    Trap(
        "cache of any length",
        "the mask is as long as the cache and the new tokens together",
        contract("derived_axes.py:Cache", **_CACHE),
    ),
    Trap(
        "cache of any length under dynamo",
        "the sum of two axes has its declared name in the file",
        contract("derived_axes.py:Cache", DYNAMO, **_CACHE),
    ),
    Trap(
        "cache of the example's length",
        "a trace has the length of the example's cache in its positions",
        contract("derived_axes.py:FixedCache", **_CACHE),
        parity("axes", "past=7: output 'y'"),
    ),
    Trap(
        "cache that is one longer than its mask",
        "PyTorch's output is longer than the declared sum",
        contract("derived_axes.py:LongCache", **_CACHE),
        failed(Stage.SOURCE, "output 'keys' is declared [batch, total, 4] with"),
    ),
    Trap(
        "half of a length under dynamo",
        "a stride of 2 is a floor division, at odd lengths too",
        contract("derived_axes.py:Halved", DYNAMO, **_halved(kernel=2)),
    ),
    Trap(
        "half of a length, rounded up, under dynamo",
        "a window of 1 has one step more at odd lengths",
        contract("derived_axes.py:Halved", DYNAMO, **_halved(kernel=1)),
        failed(Stage.SOURCE, "output 'y' is declared [batch, 4, half] with"),
    ),
    Trap(
        "first and last rows under dynamo",
        "with 4 rows or more, `Min(4, rows)` is 4",
        contract("derived_axes.py:Ends", DYNAMO, **_ends(4)),
    ),
    Trap(
        "first and last rows of fewer under dynamo",
        "3 rows are promised, and they give 6",
        contract("derived_axes.py:Ends", DYNAMO, **_ends(3)),
        failed(Stage.SOURCE, "rows=3: output 'y' is declared [batch, 8, 4]"),
    ),
    Trap(
        "window that covers each promised length under dynamo",
        "with 64 rows at most, the expression of the batch is the batch",
        contract("derived_axes.py:Window", DYNAMO, **_window(64)),
    ),
    Trap(
        "window shorter than a promised length under dynamo",
        "with 65 rows, the first 64 of all rows do not divide",
        contract("derived_axes.py:Window", DYNAMO, **_window(65)),
        structure("signature", "axis 'batch' of output 'y' has the name"),
    ),
)
