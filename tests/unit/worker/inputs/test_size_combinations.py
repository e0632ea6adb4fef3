"""Sizes between the usual probes: equal, smallest, prime, even and aligned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.resolved.call import SizeRule
from exporter.worker.inputs.input_sets import choose_combinations, choose_usual_sets
from tests.unit.planning.test_plan import spec


def axis(name: str, example: int, **limits: Any) -> Axis:
    return Axis.model_validate({"name": name, "example": example, **limits})


def contract(*axes: Axis, width: int = 4) -> ModelSpec:
    names = (each.name for each in axes if each.rule is None)
    inputs = tuple(
        Input(name=f"x_{name}", shape=(name, width), at=f"args[{index}]")
        for index, name in enumerate(names)
    )
    return spec("net").model_copy(update={"axes": axes, "inputs": inputs, "outputs": ()})


def combine(tested: ModelSpec, *, is_large: bool = False) -> list[tuple[int, ...]]:
    declared = {each.name: each.example or 0 for each in tested.axes}
    chosen = choose_combinations(tested, declared, [declared], is_large=is_large)
    names = [each.name for each in tested.free_axes]
    return [tuple(sizes[name] for name in names) for sizes in chosen]


def test_one_axis_is_even_prime_and_aligned() -> None:
    assert combine(contract(axis("n", 3))) == [(2,), (5,), (16,)]


def test_two_axes_are_equal_smallest_prime_and_aligned() -> None:
    tested = contract(axis("h", 5), axis("w", 7))
    assert combine(tested) == [(2, 2), (1, 1), (7, 11), (16, 2), (2, 16)]


def test_sizes_keep_their_multiples() -> None:
    tested = contract(axis("h", 24, multiple_of=8), axis("w", 9, multiple_of=3))
    assert combine(tested) == [(24, 24), (8, 3), (40, 15), (16, 6), (8, 48)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"min": 6, "max": 7, "example": 7}, [(6,)]),
        ({"min": 5, "max": 5, "example": 5}, []),
        ({"min": 10, "max": 14, "example": 11}, [(10,), (13,), (12,)]),
    ],
)
def test_a_narrow_range_has_fewer_sizes(
    limits: dict[str, int], expected: list[tuple[int, ...]]
) -> None:
    assert combine(contract(axis("n", **limits))) == expected


def test_expensive_sizes_are_omitted() -> None:
    tested = contract(axis("n", 3), width=3 * 224 * 224)
    names = [each.name for each in choose_usual_sets(tested) if each.kind == "axis"]
    assert names == ["n=5", "n=1", "n=2"]


def test_derived_axes_keep_their_limits() -> None:
    rule = SizeRule(kind="sum", operands=("past", "seq"))
    total = axis("total", 8, max=9, rule=rule)
    tested = contract(axis("past", 3, min=0), axis("seq", 5), total)
    sizes = combine(tested)
    assert sizes
    assert all(1 <= past + seq <= 9 for past, seq in sizes)


_LIMITS = st.tuples(
    st.integers(2, 40), st.sampled_from([1, 2, 3, 8]), st.integers(0, 9), st.integers(0, 90)
)


@given(limits=st.lists(_LIMITS, min_size=1, max_size=3))
def test_each_combination_is_promised_and_new(limits: list[tuple[int, int, int, int]]) -> None:
    axes = [
        axis(
            f"a{index}",
            example * unit,
            multiple_of=unit,
            min=max(example * unit - below, 1),
            max=example * unit + above,
        )
        for index, (example, unit, below, above) in enumerate(limits)
    ]
    tested = contract(*axes)
    found = combine(tested)
    assert len(set(found)) == len(found)
    assert tuple(each.example for each in axes) not in found
    for sizes in found:
        assert all(each.allows(size) for each, size in zip(axes, sizes, strict=True))
