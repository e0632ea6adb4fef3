"""Traps: detectors, whose outputs have an order and a count that depend on values."""

from __future__ import annotations

from exporter.manifest import Axis
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    parity,
)


def _detector(name: str, story: str, net: str, opset: int, verdict: Verdict = SOUND) -> Trap:
    spec = contract(
        f"detection.py:{net}",
        opset,
        inputs=(
            declare_input("one", 3, "height", 8, at="args[0][0]"),
            declare_input("two", 3, 6, "width", at="args[0][1]"),
        ),
        outputs=(
            declare_output("boxes", "found", 4),
            declare_output("scores", "found"),
            declare_output("kept", "found", dtype="int64"),
        ),
        axes=(
            Axis(name="height", example=6),
            Axis(name="width", example=10),
            Axis(name="found", example=None),
        ),
    )
    return Trap(name, story, spec, verdict)


DETECTION = (
    _detector(
        "detector", "a list of images, and boxes in the order of scores", "Detector", TORCHSCRIPT
    ),
    _detector("detector under dynamo", "the same by the other exporter", "Detector", DYNAMO),
    _detector(
        "boxes in another order",
        "the worst box comes first",
        "ReversedDetector",
        TORCHSCRIPT,
        parity("parity", "output 'boxes': error"),
    ),
    _detector(
        "another count of boxes",
        "the file has another threshold",
        "EagerDetector",
        TORCHSCRIPT,
        parity("parity", "output 'boxes': shape"),
    ),
)
