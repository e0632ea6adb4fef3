"""Traps: models that need the inference state, another attempt, or no graph optimizer."""

from __future__ import annotations

from tests.traps.trap import DYNAMO, Trap, contract, declare, parity

_SEQUENCE = declare("x [batch, 3, 4] -> y [batch, 3, 4]")

ATTEMPTS = (
    Trap(
        "transformer layer that is traced",
        "without gradients, PyTorch would fuse it to an operator that ONNX lacks",
        contract("attempts.py:Encoder", 17, **_SEQUENCE),
    ),
    Trap(
        "transformer layer under dynamo",
        "the fused path is off during the capture, too",
        contract("attempts.py:Encoder", DYNAMO, **_SEQUENCE),
    ),
    Trap(
        "attention with a trained bias",
        "a capture without gradients is decomposed without gradients, too",
        contract("attempts.py:BiasedAttention", DYNAMO, **_SEQUENCE),
    ),
    Trap(
        "captured only with gradients",
        "the first attempt fails, the one with gradients gives a right file",
        contract("attempts.py:OnlyWithGradients", DYNAMO, init={"shift": 0.0}),
    ),
    Trap(
        "other values with gradients",
        "the file of the second attempt computes another function than inference",
        contract("attempts.py:OnlyWithGradients", DYNAMO, init={"shift": 1.0}),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "optimizer that fails",
        "the graph without optimization is right",
        contract("attempts.py:Halves", DYNAMO, init={"shift": 0.0}),
    ),
    Trap(
        "optimizer that fails on a wrong graph",
        "the graph without optimization is compared like any other",
        contract("attempts.py:Halves", DYNAMO, init={"shift": 1.0}),
        parity("parity", "output 'y': error"),
    ),
)
