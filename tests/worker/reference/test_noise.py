"""Differences between outputs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from exporter.checks.protocol import read_sample
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Axis, ModelSpec, Output
from exporter.worker.model.source_loader import load_model
from exporter.worker.reference.noise import (
    NoiseMeasurement,
    choose_first_samples,
    compute_noise,
    compute_scale,
    compute_spread,
    describe_difference,
    describe_overflow,
    limit_noise,
)
from exporter.worker.reference.reference_run import compute_reference
from exporter.worker.reference.review import measure_all_samples
from tests.worker.contracts import ROOT, make_contract

NAN = math.nan


def tensors(*values: list[float] | list[int] | list[bool]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value) for value in values)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([1.0, NAN], [1.0, NAN], ""),
        ([1.0, math.inf], [1.0, math.inf], ""),
        ([1, 2], [1, 2], ""),
        ([1.0, 2.0], [1.0, 2.5], "differs by 5.0e-01"),
        ([1.0, NAN], [1.0, 0.0], "differs by"),
        ([1.0, math.inf], [1.0, torch.finfo(torch.float32).max], "differs by"),
        ([1.0], [1.0, 2.0], "has the shape [1] in one run and [2] in the other"),
    ],
)
def test_the_difference_of_two_runs_is_described(
    one: list[float], other: list[float], message: str
) -> None:
    difference = describe_difference(make_contract("Affine"), tensors(one), tensors(other))
    assert message in difference
    assert bool(message) is bool(difference)


@pytest.mark.parametrize(
    ("declared", "other", "spread"),
    [
        ([2.0, 4.0], [2.0, 3.0], 0.25),
        ([2.0, NAN], [2.0, NAN], 0.0),
        # If a number replaces NaN, a file with the constant NaN fails.
        ([2.0, NAN], [NAN, 3.0], 1.0),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1, 3], 1.0),
        ([True, False], [True, True], 1.0),
    ],
)
def test_the_spread_is_relative_to_the_scale(
    declared: list[float], other: list[float], spread: float
) -> None:
    assert compute_spread(tensors(declared), [tensors(other)]) == (spread,)


def test_the_spread_is_none_without_another_run_of_the_same_shape() -> None:
    assert compute_spread(tensors([1.0]), []) == (None,)
    assert compute_spread(tensors([1.0]), [tensors([1.0, 2.0])]) == (None,)


def test_an_integer_may_change_at_another_size_only() -> None:
    still = tensors([1, 1])
    assert compute_spread(still, [still], [tensors([1, 1, 1])]) == (0.0,)
    assert compute_spread(still, [still], [tensors([1, 1, 2])]) == (1.0,)
    assert compute_spread(tensors([1.0]), [tensors([1.0])], [tensors([2.0, 2.0])]) == (0.0,)


@pytest.mark.parametrize(
    ("declared", "resized", "spread"),
    [
        # Positions, a causal mask and a size change with the size.
        (torch.arange(3.0), torch.arange(5.0), 1.0),
        (torch.ones(3, 3).tril().bool(), torch.ones(5, 5).tril().bool(), 1.0),
        (torch.tensor([3.0]), torch.tensor([5.0]), pytest.approx(2 / 3)),
        (torch.tensor([0.0, -torch.inf]), torch.tensor([0.0, -torch.inf, -torch.inf]), 1.0),
        (torch.tensor([[3]]), torch.tensor([[5]]), 1.0),
        # A constant that is repeated does not.
        (torch.full((3, 2), 1.5), torch.full((5, 2), 1.5), 0.0),
        (torch.arange(2.0).expand(3, 2), torch.arange(2.0).expand(5, 2), 0.0),
        (torch.ones(3), torch.ones(0), 0.0),
        (torch.ones(3), torch.ones(3, 1), 0.0),
    ],
)
def test_an_output_may_depend_on_sizes_only(
    declared: torch.Tensor, resized: torch.Tensor, spread: float
) -> None:
    assert compute_spread((declared,), [(declared,)], [(resized,)]) == (spread,)


def test_an_overflow_is_reported_if_float64_is_finite() -> None:
    half = torch.tensor([1.0, torch.inf, torch.nan, torch.inf], dtype=torch.float16)
    wide = torch.tensor([1.0, 7e4, 8e4, torch.inf], dtype=torch.float64)
    texts = describe_overflow([((half, half), (wide, half.double())), ((half, half), None)])
    counts = "2 of 4 elements are Inf or NaN, but float64 has finite numbers up to 8.0e+04"
    assert texts == (f"float16 overflows in PyTorch: {counts}", "")


def test_each_item_of_a_list_may_overflow() -> None:
    items = [torch.ones(2), torch.tensor([torch.inf])]
    exact = [torch.ones(2, dtype=torch.float64), torch.tensor([1e39], dtype=torch.float64)]
    assert describe_overflow([((items,), (exact,))])[0].startswith(
        "float32 overflows in PyTorch: 1"
    )


def _list(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([float(value)]) for value in values]


def test_lists_differ_by_their_items() -> None:
    spec = make_contract("Affine", outputs=(Output(name="rows", shape=(1,), kind="sequence"),))
    assert describe_difference(spec, (_list(1, 2),), (_list(1, 2),)) == ""
    count = describe_difference(spec, (_list(1, 2),), (_list(1),))
    assert count == "output 'rows' has 2 items in one run and 1 in the other"
    apart = describe_difference(spec, (_list(1, 2),), (_list(1, 3),))
    assert apart == "item 1 of output 'rows' differs by 1.0e+00 between two runs on the same input"


def test_the_spread_of_a_list_is_the_largest_of_its_items() -> None:
    declared, moved = _list(1, 2), _list(1, 3)
    assert compute_spread((declared,), [(moved,)]) == (0.5,)
    assert compute_spread((declared,), [(declared,)]) == (0.0,)
    # Another number of items has no spread.
    assert compute_spread((declared,), [(_list(1, 2, 3),)]) == (None,)


def test_the_noise_of_a_list_is_the_largest_of_its_items() -> None:
    declared = _list(1, 2)
    exact = [item.double() * (1 + 1e-6 * index) for index, item in enumerate(declared)]
    noise = compute_noise([((declared,), (exact,))])
    assert (noise.large, noise.reason) == ((None,), "")
    assert noise.shares[0] == pytest.approx(1e-6, rel=1e-3)
    noise = compute_noise([((declared,), (exact[:1],))])
    assert noise.shares == (None,)
    assert noise.reason == "output 0: it has another number of items in float64"
    assert compute_noise([(([],), ([],))]) == NoiseMeasurement(
        shares=(None,), large=(None,), scales=(0.0,)
    )


def test_the_error_of_a_small_sample_is_no_share_of_a_large_one() -> None:
    large = (torch.tensor([2.0, -1.0]),)
    small = (torch.tensor([1e-3 + 2e-7, 0.0]),)
    exact = tuple(item.double() for item in (*large, torch.tensor([1e-3, 0.0])))
    noise = compute_noise([(large, exact[:1]), (small, exact[1:])])
    assert noise.shares[0] == pytest.approx(1e-7, rel=1e-2)
    alone = compute_noise([(small, exact[1:])])
    assert alone.shares[0] == pytest.approx(2e-4, rel=1e-2)
    # Four times the error in a larger sample, and the measured one in the sample itself.
    assert limit_noise(alone, large, None).shares[0] == pytest.approx(4e-7, rel=1e-2)
    assert limit_noise(noise, small, alone).shares == alone.shares
    unknown = compute_noise([(small, None)])
    assert limit_noise(noise, small, unknown).shares == (None,)


def test_an_error_may_be_small_relative_to_the_usual_scale() -> None:
    pair = (torch.tensor([1e-5]),), (torch.tensor([1e-9], dtype=torch.float64),)
    assert compute_noise([pair]).shares == (None,)
    assert compute_noise([pair], [1.0]).shares[0] == pytest.approx(1e4, rel=1e-2)
    assert compute_noise([pair], [1e-3]).shares == (None,)


@pytest.mark.parametrize(("error", "is_bound"), [(9e-4, True), (2e-3, False), (0.5, False)])
def test_a_large_noise_is_no_bound_but_is_stored(error: float, *, is_bound: bool) -> None:
    exact = (torch.tensor([1.0, -1.0], dtype=torch.float64),)
    declared = (torch.tensor([1.0 + error, -1.0]),)
    noise = compute_noise([(declared, exact)])
    value = pytest.approx(error, rel=1e-3)
    expected = ((value,), (None,)) if is_bound else ((None,), (value,))
    assert (noise.shares, noise.large) == expected
    assert ("too much for rounding" in noise.reason) is not is_bound


def test_the_scale_of_a_list_is_the_smallest_of_its_items() -> None:
    assert compute_scale(_list(3, 0, 0.5)) == 0.5
    assert compute_scale(_list(0)) == compute_scale([]) == 0.0


#: 4 -> 3, at a batch of 100.
WIDE = make_contract("Affine", axes=(Axis(name="batch", example=100),))


def run_reference(spec: ModelSpec, folder: Path) -> Reference:
    return compute_reference(load_model(spec, ROOT), spec, ROOT, JobFolder(folder))


def build_samples(
    *rows: int,
) -> tuple[list[dict[str, torch.Tensor]], list[tuple[torch.Tensor, ...]]]:
    return [{"x": torch.ones(n, 2)} for n in rows], [(torch.ones(n),) for n in rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((3, 7, 1, 3), [0, 1, 2, 3]),
        ((100, 7, 1), [0, 1, 2]),
        ((100, 64, 200), [1]),
        ((100, 1, 200, 70), [1, 3]),
    ],
)
def test_the_smallest_samples_come_first(rows: tuple[int, ...], expected: list[int]) -> None:
    assert choose_first_samples(*build_samples(*rows)) == expected


def test_integers_need_no_float64() -> None:
    inputs, _ = build_samples(100, 1)
    outputs = [(torch.ones(len(each["x"]), dtype=torch.int64),) for each in inputs]
    assert choose_first_samples(inputs, outputs) == [1]


def test_a_small_output_beside_a_large_one_has_few_samples() -> None:
    inputs, small = build_samples(1, 1, 1, 1, 1, 1)
    wide = torch.zeros(1 << 22)
    assert choose_first_samples(inputs, [(*each, wide[:64]) for each in small]) == [*range(6)]
    assert choose_first_samples(inputs, [(*each, wide) for each in small]) == [*range(4)]


def test_blocks_find_the_largest_error() -> None:
    exact = torch.ones(100_000, dtype=torch.float64)
    declared = exact.float()
    declared[70_000], declared[1], declared[2] = 1.0 + 2**-20, NAN, math.inf
    (share,) = compute_noise([((declared,), (exact,))]).shares
    assert share == 2**-20
    assert describe_overflow([((declared,), (exact,))])[0].startswith(
        "float32 overflows in PyTorch: 2 of 100000 elements"
    )
    assert "differs by 9.5e-07" in describe_difference(
        make_contract("Affine"), (declared[3:],), (exact.float()[3:],)
    )


def test_an_expensive_sample_has_no_float64_outputs_at_first(tmp_path: Path) -> None:
    reference = run_reference(WIDE, tmp_path)
    measured = {sample.name: sample.exact for sample in reference.samples}
    assert {name for name, exact in measured.items() if not exact} == {
        "batch=127",
        "other x",
        "special values of x",
        "equal values of x",
        "rising values of x",
    }
    assert not reference.is_measured_everywhere
    for sample in reference.samples:
        data = read_sample(JobFolder(tmp_path).sample(sample.index), WIDE)
        assert (data.float64_outputs[0] is not None) is sample.exact


def test_measure_all_samples_measures_the_other_samples(tmp_path: Path) -> None:
    model, folder = load_model(WIDE, ROOT), JobFolder(tmp_path)
    first = compute_reference(model, WIDE, ROOT, folder)
    full = measure_all_samples(model, WIDE, folder, first)
    assert full.is_measured_everywhere
    assert full.noise == first.noise
    for sample in full.samples:
        (noise,) = sample.noise
        assert noise is not None
        data = read_sample(folder.sample(sample.index), WIDE)
        exact = data.float64_outputs[0]
        assert exact is not None
        assert abs(exact - data.outputs[0]).max() <= noise * abs(exact).max() * 1.000001


def test_a_model_without_float64_is_measured_everywhere(tmp_path: Path) -> None:
    spec = make_contract("Float32Only", "x [batch, 4] -> y [batch, 4]")
    assert run_reference(spec, tmp_path).is_measured_everywhere
