"""Branches of a model are searched, or the record says why they are not."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from exporter.records.record import UNPROVED_PREFIX, Record, Status
from exporter.worker.export import model_branches
from exporter.worker.process import followed_code
from tests.traps.branches import BRANCHES
from tests.traps.prove import export, make_record
from tests.worker.contracts import make_contract

(BYTES,) = (trap for trap in BRANCHES if trap.name == "branch for the bytes of a tensor")


def list_texts(record: Record) -> list[str]:
    """Return why branches of the record were not searched."""
    start = f"{UNPROVED_PREFIX}branches were not searched, because "
    return [note.removeprefix(start) for note in record.notes if note.startswith(start)]


def test_a_branch_is_found_without_a_warning_of_the_tracer(tmp_path: Path) -> None:
    record = make_record(BYTES, tmp_path / "trap")
    assert record.status is Status.FAIL
    assert not list_texts(record)


def test_sizes_without_a_branch_are_not_named(tmp_path: Path) -> None:
    # Each of the many sizes after a warning would need a run.
    (record,) = export(make_contract("KeepsSize", "x [n, m] -> y [n, m]", opsets=(17,)), tmp_path)
    assert not [note for note in record.notes if "a branch of the model" in note]


@pytest.mark.parametrize(("cost", "status"), [(4096.0, Status.FAIL), (0.0, Status.PASS)])
def test_each_number_of_a_slow_model_gets_a_size_before_any_gets_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, status: Status
) -> None:
    monkeypatch.setattr(model_branches, "_MOST_COST", cost)
    spec = make_contract("ManyNumbers", "x [batch, 4] -> y [batch, 4]", opsets=(17,))
    (record,) = export(spec, tmp_path)
    assert record.status is status
    (text,) = (note for note in record.notes if "sizes of axis 'batch'" in note)
    untried, total = map(int, re.findall(r"(\d+) of (\d+) sizes", text)[0])
    assert total - untried == (8 if cost else 4)


def test_values_that_are_equal_in_all_draws_are_named(tmp_path: Path) -> None:
    notes = {}
    for net in ("KeepsNumber", "KeepsMean", "KeepsSize"):
        spec = make_contract(net, "x [batch, 4] -> y [batch, 4]", opsets=(17,))
        (record,) = export(spec, tmp_path / net)
        assert record.status is Status.PASS
        notes[net] = [note for note in record.notes if "other values" in note]
    assert notes.pop("KeepsNumber")[0].startswith(
        "not proved: other values at tests/worker/nets.py:"
    )
    assert not any(notes.values())


@pytest.mark.parametrize(("limit", "status"), [(1e9, Status.PASS), (0.0, Status.FAIL)])
def test_a_number_whose_other_branch_no_sample_takes_is_named(
    tmp_path: Path, limit: float, status: Status
) -> None:
    signature = "x [batch, 4] -> y [batch, 4]"
    spec = make_contract("HighBranch", signature, opsets=(17,), init={"limit": limit})
    (record,) = export(spec, tmp_path / "net")
    assert record.status is status
    texts = [note for note in record.notes if "other values at tests/worker/nets.py:" in note]
    assert bool(texts) is (status is Status.PASS)


def test_a_record_says_that_python_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_trace", "_monitor"):
        monkeypatch.setattr(followed_code, name, lambda *_: nullcontext())
    record = make_record(BYTES, tmp_path / "trap")
    assert record.status is Status.PASS
    assert list_texts(record) == ["this Python does not report the instructions of a known example"]
