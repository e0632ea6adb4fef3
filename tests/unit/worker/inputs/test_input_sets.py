"""Probe sizes are distant, coprime and inside the contract; some samples combine them."""

from __future__ import annotations

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import Axis, Case, Fill, Input, ModelSpec
from exporter.manifest.resolved.call import SizeRule
from exporter.worker.inputs.input_sets import (
    choose_combinations,
    choose_probes,
    choose_usual_sets,
    find_distant_size,
)
from exporter.worker.inputs.thorough_sets import choose_all_sets
from tests.unit.planning.test_plan import spec


def axis(name: str = "n", example: int = 3, **limits: object) -> Axis:
    return Axis.model_validate({"name": name, "example": example, **limits})


@pytest.mark.parametrize(
    ("given_axis", "expected"),
    [
        (axis(example=3), (7, 1)),
        (axis(example=5), (11, 1)),
        (axis(example=224), (281, 1)),
        (axis(example=3, min=2), (7, 2)),
        (axis(example=3, min=3), (7,)),
        # The range is too narrow to double the size: its end, or a smaller size.
        (axis(example=3, max=5), (5, 1)),
        (axis(example=3, min=3, max=4), (4,)),
        (axis(example=24, multiple_of=8), (56, 8)),
        (axis(example=4, min=4, max=4), ()),
        (axis(example=224, multiple_of=32, min=64, max=512), (480, 64)),
    ],
)
def test_the_probes_of_one_axis(given_axis: Axis, expected: tuple[int, ...]) -> None:
    assert choose_probes(given_axis) == expected


@given(
    example=st.integers(2, 300),
    unit=st.sampled_from([1, 2, 8, 32]),
    below=st.integers(0, 50),
    above=st.none() | st.integers(0, 400),
)
def test_probes_keep_the_contract_and_differ_from_the_example(
    example: int, unit: int, below: int, above: int | None
) -> None:
    size = example * unit
    tested = axis(
        example=size,
        multiple_of=unit,
        min=max(size - below, 1),
        max=None if above is None else size + above,
    )
    probes = choose_probes(tested)
    assert size not in probes
    assert len(set(probes)) == len(probes)
    assert all(tested.allows(probe) for probe in probes)
    if above is None:
        distant = find_distant_size(tested, avoid=(size,))
        assert distant is not None
        assert distant > size
        assert gcd(distant // unit, example) == 1
    others = [n for n in range(tested.min, (tested.max or size * 3) + 1) if tested.allows(n)]
    if others != [size]:
        assert probes, "another size is allowed, but there is no probe"


def two_axes(**changes: object) -> object:
    inputs = (
        Input(name="x", shape=("batch", "sequence"), at="args[0]"),
        Input(name="y", shape=("batch", 4), at="args[1]"),
    )
    axes = (axis("batch", 3), axis("sequence", 5), Axis(name="found", example=None))
    return spec(inputs=inputs, axes=axes, **changes)


def test_each_axis_changes_alone_and_then_all_together() -> None:
    sets = choose_usual_sets(two_axes())
    assert [chosen.name for chosen in sets] == [
        "declared",
        "batch=7",
        "batch=1",
        "sequence=11",
        "sequence=1",
        "batch=8 sequence=13",
        "batch=2 sequence=2",
        "batch=1 sequence=1",
        "batch=16 sequence=2",
        "batch=2 sequence=16",
        "other x",
        "other y",
        "special values of x, y",
        "equal values of x, y",
        "rising values of x, y",
    ]
    assert dict(sets[1].sizes) == {"batch": 7, "sequence": 5}
    joint = dict(sets[5].sizes)
    assert joint["batch"] != joint["sequence"]
    assert gcd(joint["batch"], joint["sequence"]) == 1


def test_cases_come_after_axes_with_their_sizes() -> None:
    case = Case(name="wide", axes={"sequence": 640}, fills={"y": Fill(kind="value", value=1.0)})
    last = choose_usual_sets(two_axes(cases=(case,)))[10]
    assert last.name == "wide"
    assert last.kind == "case"
    assert dict(last.sizes) == {"batch": 3, "sequence": 640}
    assert last.case == case


def test_a_model_without_axes_has_declared_and_changed_values_only() -> None:
    kinds = [chosen.kind for chosen in choose_usual_sets(spec())]
    assert kinds == ["declared", "values", "values", "values", "values"]


def test_special_values_of_a_large_input_have_cheap_sizes() -> None:
    image = Input(name="x", shape=("batch", 3, 224, 224), at="args[0]")
    sets = choose_usual_sets(spec(inputs=(image,), axes=(axis("batch", 3),)))
    sizes = {chosen.special: chosen.sizes["batch"] for chosen in sets if chosen.special}
    assert sizes == {"ends": 3, "constant": 1, "rising": 1}


def test_a_flag_has_one_set_for_each_value() -> None:
    fill = Fill(kind="bernoulli", probability=0.5)
    flag = Input(name="keep", shape=(3,), at="args[0]", dtype="bool", fill=fill)
    sets = choose_usual_sets(spec(inputs=(flag,), axes=()))
    assert [chosen.special for chosen in sets if chosen.special] == ["highest", "lowest"]


@pytest.mark.parametrize(
    ("limits", "width", "expected"),
    [
        ({"max": 512}, 4, ["n=7", "n=1", "n=512"]),
        ({"max": 512, "multiple_of": 3}, 4, ["n=9", "n=510"]),
        ({"max": 7}, 4, ["n=7", "n=1"]),
        ({"max": 6, "min": 6, "example": 6}, 4, []),
        # Too expensive: attention would need gigabytes.
        ({"max": 100_000}, 4, ["n=7", "n=1"]),
        ({"max": 512}, 1_000_000, ["n=5", "n=1"]),
        ({}, 4, ["n=7", "n=1"]),
    ],
)
def test_the_largest_promised_size_is_a_probe_if_it_is_cheap(
    limits: dict[str, object], width: int, expected: list[str]
) -> None:
    contract = spec("net").model_copy(
        update={
            "axes": (Axis.model_validate({"name": "n", "example": 3, **limits}),),
            "inputs": (Input(name="x", shape=("n", width), at="args[0]"),),
            "outputs": (),
        }
    )
    names = [item.name for item in choose_usual_sets(contract) if item.kind == "axis"]
    assert names[: len(expected)] == expected
    others = (int(name.removeprefix("n=")) for name in names[len(expected) :])
    assert all(contract.axes[0].allows(size) and size < 100 for size in others)


@given(example=st.integers(2, 3000), unit=st.sampled_from([1, 8]))
def test_a_nearer_size_is_larger_and_coprime(example: int, unit: int) -> None:
    tested = axis(example=example * unit, multiple_of=unit)
    distant = find_distant_size(tested, avoid=(example * unit,)) or 0
    near = find_distant_size(tested, avoid=(example * unit,), is_large=True) or 0
    assert example * unit < near <= distant
    assert gcd(near // unit, example) == 1


def test_derived_axes_follow_the_probes() -> None:
    axes = (
        axis("past", 3, min=0),
        axis("seq", 5),
        axis("total", 8, rule=SizeRule(kind="sum", operands=("past", "seq"))),
    )
    sets = choose_usual_sets(spec(axes=axes))
    sizes = [dict(chosen.sizes) for chosen in sets if chosen.kind in ("declared", "axis")]
    assert {"past": 3, "seq": 5, "total": 8} in sizes
    assert {"past": 0, "seq": 5, "total": 5} in sizes
    assert all(each["total"] == each["past"] + each["seq"] for each in sizes)
    assert not any(chosen.name.startswith("total=") for chosen in sets)
    assert {name for each in sizes for name in each} == {"past", "seq", "total"}


@pytest.mark.parametrize("limit", [9, 16, 64])
def test_no_probe_exceeds_the_limit_of_a_sum(limit: int) -> None:
    rule = SizeRule(kind="sum", operands=("past", "seq"))
    axes = (axis("past", 3, min=0), axis("seq", 5), axis("total", 8, max=limit, rule=rule))
    contract = spec(axes=axes, thorough=True)
    sets = choose_all_sets(contract, (12, 70))
    assert all(1 <= chosen.sizes["total"] <= limit for chosen in sets)
    for name in ("past", "seq"):
        assert len({chosen.sizes[name] for chosen in sets}) > 2


def test_probes_keep_the_order_of_a_difference() -> None:
    rule = SizeRule(kind="difference", operands=("total", "past"))
    axes = (axis("total", 11), axis("past", 3, min=0), axis("new", 8, rule=rule))
    sets = choose_usual_sets(spec(axes=axes))
    assert all(
        chosen.sizes["new"] == chosen.sizes["total"] - chosen.sizes["past"] for chosen in sets
    )
    assert min(chosen.sizes["new"] for chosen in sets) >= 1
    assert {chosen.sizes["past"] for chosen in sets} > {0, 3}


def test_a_possible_mask_is_padded_at_the_longest_sizes() -> None:
    rows = ("batch", "seq")
    mask = Input(name="mask", shape=rows, dtype="int64", at="args[0]", fill=Fill(kind="ones"))
    axes = (axis("batch", 2), axis("seq", 5))

    def list_padded(*inputs: Input) -> list[tuple[str, int]]:
        sets = choose_usual_sets(spec(inputs=inputs, outputs=(), axes=axes))
        return [(each.changed_input, each.sizes["seq"]) for each in sets if each.is_padded]

    ((name, size),) = list_padded(mask)
    assert (name, size > 5) == ("mask", True)
    others = (
        {"dtype": "float32"},
        {"shape": ("seq",)},
        {"shape": ("batch", 8)},
        {"fill": Fill(kind="zeros")},
        {"fill": Fill(kind="randint", low=0, high=2)},
    )
    assert [list_padded(mask.model_copy(update=each)) for each in others] == [[]] * len(others)


def contract(*axes: Axis, width: int = 4) -> ModelSpec:
    names = (each.name for each in axes if each.rule is None)
    inputs = tuple(
        Input(name=f"x_{name}", shape=(name, width), at=f"args[{index}]")
        for index, name in enumerate(names)
    )
    return spec("net").model_copy(update={"axes": axes, "inputs": inputs, "outputs": ()})


def combine(tested: ModelSpec) -> list[tuple[int, ...]]:
    declared = {each.name: each.example or 0 for each in tested.axes}
    chosen = choose_combinations(tested, declared, [declared])
    names = [each.name for each in tested.free_axes]
    return [tuple(sizes[name] for name in names) for sizes in chosen]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        # One axis is even and aligned; two are equal, smallest and aligned.
        ([axis("n", 3)], [(2,), (16,)]),
        ([axis("h", 5), axis("w", 7)], [(2, 2), (1, 1), (16, 2), (2, 16)]),
        (
            [axis("h", 24, multiple_of=8), axis("w", 9, multiple_of=3)],
            [(24, 24), (8, 3), (16, 6), (8, 48)],
        ),
        # A narrow range has fewer sizes.
        ([axis("n", min=6, max=7, example=7)], [(6,)]),
        ([axis("n", min=5, max=5, example=5)], []),
        ([axis("n", min=10, max=14, example=11)], [(10,), (12,)]),
    ],
)
def test_combinations_are_even_aligned_and_promised(
    axes: list[Axis], expected: list[tuple[int, ...]]
) -> None:
    assert combine(contract(*axes)) == expected


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
