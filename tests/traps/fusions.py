"""Traps: faults of the exporter's own graph optimizer."""

from __future__ import annotations

from tests.traps.trap import (
    DYNAMO,
    Trap,
    contract,
    declare_input,
    declare_output,
    parity,
    structure,
)


def _picture(channels: int) -> dict[str, object]:
    return {
        "inputs": (declare_input("x", "batch", 3, 6, 6),),
        "outputs": (declare_output("y", "batch", channels, 6, 6),),
    }


_WIDE = {"second": 6}
_WRONG = parity("parity", "times the bound")

FUSIONS = (
    Trap(
        "two convolutions share a bias (pytorch#166797)",
        "both read one input and have other numbers of channels; one has the other's bias",
        contract("fusions.py:Branches", DYNAMO, init=_WIDE, **_picture(10)),
        parity("parity", "bias must be a 1D tensor"),
    ),
    Trap(
        "two convolutions share a bias of one size (onnxscript 2680)",
        "the same, with equal numbers of channels: no shape is wrong",
        contract("fusions.py:Branches", DYNAMO, **_picture(4)),
        _WRONG,
    ),
    Trap(
        "two convolutions share a bias and one is lost",
        "newer releases of the optimizer rename one of two equal names",
        contract("fusions.py:Branches", DYNAMO, init={"name": "lost"}, **_picture(4)),
        structure("wellformed", "is not output of any previous nodes"),
    ),
    Trap(
        "two products share a bias (pytorch#174042)",
        "two matrices multiply one gathered row, and each has a normalization",
        contract("fusions.py:Heads", DYNAMO),
        _WRONG,
    ),
    Trap(
        "a factor of the bias is ignored (onnxscript 3027)",
        "the bias of Gemm counts twice, and the fused bias counts once",
        contract("fusions.py:Doubled", DYNAMO),
        _WRONG,
    ),
    *(
        Trap(
            f"{name} with today's rule",
            "the installed rule fuses the same model rightly",
            contract(f"fusions.py:{name}", DYNAMO, init={"name": "new", **init}, **extra),
        )
        for name, init, extra in (
            ("Branches", _WIDE, _picture(10)),
            ("Heads", {}, {}),
            ("Doubled", {}, {}),
        )
    ),
)
