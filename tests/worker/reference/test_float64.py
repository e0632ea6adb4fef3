"""Float64 runs for the cheapest samples, and for all if a file is in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.checks.sample_files import read_sample
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Axis, ModelSpec
from exporter.worker.model.source_loader import load_model
from exporter.worker.reference.noise import (
    choose_first_samples,
    measure_all_samples,
)
from exporter.worker.reference.reference_run import compute_reference
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract

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


def test_an_expensive_sample_has_no_float64_outputs_at_first(tmp_path: Path) -> None:
    reference = run_reference(WIDE, tmp_path)
    measured = {sample.name: sample.exact for sample in reference.samples}
    assert {name for name, exact in measured.items() if not exact} == {
        "batch=127",
        "batch=101",
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
    full = measure_all_samples(model, WIDE, ROOT, folder, first)
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
    spec = make_contract(
        "Float32Only", outputs=(declare_output("y", "batch", 4),), inputs=(declare_input(),)
    )
    assert run_reference(spec, tmp_path).is_measured_everywhere
