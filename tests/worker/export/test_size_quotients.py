"""Pairs of sizes whose quotient is rounded across an integer; traps prove that they are found."""

from __future__ import annotations

from exporter.manifest import Axis
from exporter.worker.export.size_quotients import list_quotient_pairs
from tests.worker.contracts import make_contract

SIGNATURE = "x [length], z [count] -> y [count]"


def list_pairs(**limits: dict[str, int]) -> list[tuple[int, int]]:
    axes = tuple(
        Axis.model_validate({"name": name, "example": 2} | limits.get(name, {}))
        for name in ("length", "count")
    )
    spec = make_contract("", SIGNATURE, axes=axes)
    pairs = list_quotient_pairs(spec, {"length": 2, "count": 2})
    return [(sizes["length"], sizes["count"]) for sizes in pairs]


def test_pairs_of_a_resize_and_of_a_range_are_listed_the_cheapest_first() -> None:
    pairs = list_pairs()
    assert pairs[0] == (14, 2)
    assert {(1, 25), (2, 14), (25, 1)} <= set(pairs)


def test_pairs_have_promised_sizes_only() -> None:
    pairs = list_pairs(length={"multiple_of": 4, "example": 4}, count={"max": 9})
    assert pairs
    assert all(length % 4 == 0 and count <= 9 for length, count in pairs)
    assert not list_pairs(length={"max": 2}, count={"max": 2})
