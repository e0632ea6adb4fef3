"""Traps: models that need the inference state, another attempt, or no graph optimizer.

Output: `ATTEMPTS`.
"""

from __future__ import annotations

from tests.traps.trap import DYNAMO, SOUND, Trap, contract, declare_input, declare_output, parity

_SEQUENCE = {
    "inputs": (declare_input("x", "batch", 3, 4),),
    "outputs": (declare_output("y", "batch", 3, 4),),
}

ATTEMPTS = (
    Trap(
        name="transformer layer that is traced",
        story="without gradients, PyTorch would fuse it to an operator that ONNX lacks",
        spec=contract("attempts.py:Encoder", 17, **_SEQUENCE),
        verdict=SOUND,
    ),
    Trap(
        name="transformer layer under dynamo",
        story="the fused path is off during the capture, too",
        spec=contract("attempts.py:Encoder", DYNAMO, **_SEQUENCE),
        verdict=SOUND,
    ),
    Trap(
        name="attention with a trained bias",
        story="a capture without gradients is decomposed without gradients, too",
        spec=contract("attempts.py:BiasedAttention", DYNAMO, **_SEQUENCE),
        verdict=SOUND,
    ),
    Trap(
        name="captured only with gradients",
        story="the first attempt fails, the one with gradients gives a right file",
        spec=contract("attempts.py:OnlyWithGradients", DYNAMO, init={"shift": 0.0}),
        verdict=SOUND,
    ),
    Trap(
        name="other values with gradients",
        story="the file of the second attempt computes another function than inference",
        spec=contract("attempts.py:OnlyWithGradients", DYNAMO, init={"shift": 1.0}),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="optimizer that fails",
        story="the graph without optimization is right",
        spec=contract("attempts.py:Halves", DYNAMO, init={"shift": 0.0}),
        verdict=SOUND,
    ),
    Trap(
        name="optimizer that fails on a wrong graph",
        story="the graph without optimization is compared like any other",
        spec=contract("attempts.py:Halves", DYNAMO, init={"shift": 1.0}),
        verdict=parity("parity", "output 'y': error"),
    ),
)
