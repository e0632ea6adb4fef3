"""The review of a reference when a file differs from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.checks.protocol import hash_sample, read_sample
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Axis, ModelSpec, Rollout
from exporter.records.record import UNMEASURED_NOTE, CheckResult, Record, Stage, Status
from exporter.worker.model.source_loader import load_model
from exporter.worker.reference import review
from exporter.worker.reference.reference_run import compute_reference
from exporter.worker.reference.review import is_worth_review, review_reference
from tests.traps.ends import ENDS
from tests.traps.numbers import NUMBERS
from tests.traps.prove import export
from tests.traps.ties import TIES
from tests.traps.trap import ROOT as TRAP_ROOT
from tests.traps.trap import contract
from tests.unit.factory import make_record
from tests.worker.contracts import ROOT, make_contract

#: 4 -> 3, at a batch of 100.
WIDE = make_contract("Affine", axes=(Axis(name="batch", example=100),))
SPECS = {trap.name: trap.spec for trap in (*TIES, *ENDS, *NUMBERS)}


def make_failure(*excess: float, status: Status = Status.FAIL) -> Record:
    checks = [
        CheckResult(check="axes", status=Status.FAIL, metrics={"of_limit": one}) for one in excess
    ]
    record = make_record("net/18/cpu", status, checks=tuple(checks))
    return record.model_copy(update={"stage": Stage.PARITY})


def run_review(
    spec: ModelSpec, folder: Path, *excess: float, root: Path = TRAP_ROOT
) -> tuple[Reference, Reference]:
    model, files = load_model(spec, root), JobFolder(folder)
    first = compute_reference(model, spec, root, files)
    return first, review_reference(model, spec, files, first, make_failure(*excess))


def test_only_compared_values_are_worth_a_review(tmp_path: Path) -> None:
    first, reviewed = run_review(WIDE, tmp_path, 1.5, root=ROOT)
    assert is_worth_review(make_failure(1.5), first)
    assert is_worth_review(make_failure(1.5, float("inf")), first)
    assert not is_worth_review(make_failure(), first)
    assert is_worth_review(make_failure(1.5, status=Status.INCONCLUSIVE), first)
    assert not is_worth_review(make_failure(1.5, status=Status.ERROR), first)
    assert not is_worth_review(make_failure(1.5), reviewed)


@pytest.mark.parametrize(("excess", "is_measured"), [(1.5, True), (float("inf"), False)])
def test_float64_helps_only_if_numbers_differ(
    excess: float, is_measured: bool, tmp_path: Path
) -> None:
    first, reviewed = run_review(WIDE, tmp_path, excess, root=ROOT)
    assert not first.is_measured_everywhere
    assert reviewed.is_measured_everywhere is is_measured


def test_the_noise_of_plain_float32_is_added(tmp_path: Path) -> None:
    spec = SPECS["cumulative sum of 20,000 elements"]
    first, reviewed = run_review(spec, tmp_path, 1.5)
    for before, after in zip(first.samples, reviewed.samples, strict=True):
        if before.scales:
            assert before.noise[0] is not None
            assert after.noise[0] is not None
            assert 3 * before.noise[0] < after.noise[0] < 1e-4
    assert reviewed.noise == first.noise


class Rejection(TorchDispatchMode):
    """Fails at the first operator, as torch.cond of torch 2.15 does under a dispatch mode."""

    def __torch_dispatch__(self, *_: object, **__: object) -> None:
        raise RuntimeError("no dispatch mode")


def test_a_model_that_rejects_other_rounding_keeps_its_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "round_differently", lambda _: Rejection())
    first, reviewed = run_review(WIDE, tmp_path, float("inf"), root=ROOT)
    assert [each.noise for each in reviewed.samples] == [each.noise for each in first.samples]


def test_the_selections_are_written(tmp_path: Path) -> None:
    spec = SPECS["topk of equal values"]
    _, reviewed = run_review(spec, tmp_path, float("inf"))
    for sample in reviewed.samples:
        path = JobFolder(tmp_path).sample(sample.index)
        assert hash_sample(path) == sample.sha256
        data = read_sample(path, spec)
        values, indices = data.selections
        assert values is None
        assert indices is not None
        assert indices.exact.all()
        assert indices.margin == 0
        assert indices.keys.shape == (sample.axes["batch"], 64)
        assert not indices.is_first_promised


def test_the_margin_of_a_tie_is_the_rounding_of_its_values(tmp_path: Path) -> None:
    spec = SPECS["label of two sums that differ by rounding"]
    _, reviewed = run_review(spec, tmp_path, float("inf"))
    data = read_sample(JobFolder(tmp_path).sample(0), spec)
    (labels,) = data.selections
    assert labels is not None
    assert not labels.exact.all()
    assert 0 < labels.margin < 1e-4
    assert labels.is_first_promised
    assert reviewed.is_reviewed


@pytest.mark.parametrize(
    ("name", "is_omitted"),
    [
        ("equal inputs, of which rounding selects", True),
        ("input of zeros inside the graph", False),
    ],
)
def test_equal_values_need_a_stable_result(name: str, is_omitted: bool, tmp_path: Path) -> None:
    first, reviewed = run_review(SPECS[name], tmp_path, float("inf"))
    kept = {sample.name for sample in reviewed.samples}
    omitted = {sample.name for sample in first.samples} - kept
    assert omitted == ({"equal values of x", "rising values of x"} if is_omitted else set())


def test_slow_runs_end_after_the_first_other_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SPECS["label of two sums that differ by rounding"]
    _, complete = run_review(spec, tmp_path / "complete", float("inf"))
    assert not complete.unmeasured
    monkeypatch.setattr(review, "_MOST_COST", 0)
    _, reviewed = run_review(spec, tmp_path / "slow", float("inf"))
    path = JobFolder(tmp_path / "slow").sample(0)
    assert len(read_sample(path, spec).rounded_outputs) == 1
    assert hash_sample(path) == reviewed.samples[0].sha256
    assert "runs with other rounding, because they are slow" in reviewed.unmeasured


def test_slow_runs_without_float64_are_one_for_each_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SPECS["small probabilities without float64"]
    first, complete = run_review(spec, tmp_path / "complete", 1.5)
    assert first.noise == (None,)
    assert not complete.unmeasured
    monkeypatch.setattr(review, "_MOST_COST", 0)
    _, reviewed = run_review(spec, tmp_path / "slow", 1.5)
    count = sum(each.factor == 1.0 and not each.error for each in first.samples)
    text = f"{9 * count} of {10 * count} runs with other rounding, because they are slow"
    assert reviewed.unmeasured == text
    assert all(each.noise or each.factor != 1.0 for each in reviewed.samples)
    assert reviewed.noise != (None,)


@pytest.mark.parametrize("cost", [0, review._MOST_COST])
def test_a_red_file_names_the_runs_that_are_left_out(
    cost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "_MOST_COST", cost)
    spec = SPECS["label of two sums that differ by more"]
    (record,) = export(spec, tmp_path)
    notes = [note for note in record.notes if note.startswith(UNMEASURED_NOTE)]
    assert (record.status, len(notes)) == (Status.FAIL, 0 if cost else 1)


@pytest.mark.parametrize(("share", "status"), [(0.0, Status.PASS), (1e-4, Status.FAIL)])
def test_the_steps_of_a_loop_have_the_rounding_of_a_review(
    share: float, status: Status, tmp_path: Path
) -> None:
    """A runtime's sigmoid is off by 3e-8, which is much more than PyTorch's noise near 0."""
    signature = "x [batch=3, 4], h [batch, 6] -> y [batch, 64], h1 [batch, 6]"
    spec = contract(
        "rollouts.py:Detector",
        signature=signature,
        init={"share": share},
        rollout=Rollout(steps=8, feeds={"h1": "h"}),
    )
    (record,) = export(spec, tmp_path)
    assert record.status is status, record.message
    results = {each.check: each for each in record.checks}
    assert results["rollout"].status is status
    assert "of_limit" in results["rollout"].metrics
