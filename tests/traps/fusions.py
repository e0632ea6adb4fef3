"""Traps: faults of the exporter's own graph optimizer.

Output: `FUSIONS`.
"""

from __future__ import annotations

from tests.traps.trap import (
    DYNAMO,
    SOUND,
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
        name="two convolutions share a bias (pytorch#166797)",
        story="both read one input and have other numbers of channels; one has the other's bias",
        spec=contract("fusions.py:Branches", DYNAMO, init=_WIDE, **_picture(10)),
        verdict=parity("parity", "bias must be a 1D tensor"),
    ),
    Trap(
        name="two convolutions share a bias of one size (onnxscript 2680)",
        story="the same, with equal numbers of channels: no shape is wrong",
        spec=contract("fusions.py:Branches", DYNAMO, **_picture(4)),
        verdict=_WRONG,
    ),
    Trap(
        name="two convolutions share a bias and one is lost",
        story="newer releases of the optimizer rename one of two equal names",
        spec=contract("fusions.py:Branches", DYNAMO, init={"name": "lost"}, **_picture(4)),
        verdict=structure("wellformed", "is not output of any previous nodes"),
    ),
    Trap(
        name="two products share a bias (pytorch#174042)",
        story="two matrices multiply one gathered row, and each has a normalization",
        spec=contract("fusions.py:Heads", DYNAMO),
        verdict=_WRONG,
    ),
    Trap(
        name="a factor of the bias is ignored (onnxscript 3027)",
        story="the bias of Gemm counts twice, and the fused bias counts once",
        spec=contract("fusions.py:Doubled", DYNAMO),
        verdict=_WRONG,
    ),
    *(
        Trap(
            name=f"{name} with today's rule",
            story="the installed rule fuses the same model rightly",
            spec=contract(f"fusions.py:{name}", DYNAMO, init={"name": "new", **init}, **extra),
            verdict=SOUND,
        )
        for name, init, extra in (
            ("Branches", _WIDE, _picture(10)),
            ("Heads", {}, {}),
            ("Doubled", {}, {}),
        )
    ),
)
