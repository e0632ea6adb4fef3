from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.gate import judge
from exporter.records.baseline import Baseline
from exporter.report.rows.finding_groups import fold_findings
from exporter.report.rows.opset_ranges import fold, fold_opsets, likeness
from tests.unit.factory import make_record, make_run


@pytest.mark.parametrize(
    ("opsets", "text"),
    [([], ""), ([18], "18"), ([9, 10], "9-10"), ([13, 9, 10, 11, 9], "9-11,13")],
)
def test_ranges(opsets: list[int], text: str) -> None:
    assert fold_opsets(opsets) == text


@given(st.sets(st.integers(1, 40)))
def test_ranges_lose_and_add_no_opset(opsets: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, fold_opsets(opsets).split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    assert found == opsets


def test_alike_but_for_the_opset() -> None:
    records = [
        make_record("a/10/cpu", "fail", message="off by 2"),
        make_record("a/9/cpu", "fail", message="off by 1"),
        make_record("a/9/cuda", "fail", message="off by 1"),
        make_record("a/12/cpu", "fail", message="something else"),
        make_record("b/9/cpu", "fail", message="off by 1"),
    ]
    folds = fold(records, lambda item: item.cell, lambda item: likeness(item.message))
    assert [same.label for same in folds] == ["a/9-10/cpu", "a/9/cuda", "a/12/cpu", "b/9/cpu"]
    assert folds[0].first.message == "off by 1"
    assert sum(len(same.members) for same in folds) == len(records)


def test_findings_of_other_kinds_stay_apart() -> None:
    run = make_run(
        make_record("a/9/cpu"),
        make_record("a/10/cpu"),
        make_record("a/11/cpu", "error", message="opset 11 lacks Foo"),
        make_record("a/12/cpu", "error", message="opset 12 lacks Foo"),
        make_record("a/13/cpu", "error", message="opset 13 lacks Bar"),
    )
    findings = judge(Baseline(tools={}, cells=()), run, list(run.by_cell()))
    assert [same.label for same in fold_findings(findings)] == [
        "a/11-12/cpu",
        "a/13/cpu",
        "a/9-10/cpu",
    ]


def test_likeness_is_about_numbers_only() -> None:
    assert likeness("opset 9: off by 1.2e-05") == likeness("opset 10: off by 3.4e+07")
    assert likeness("no Foo") != likeness("no Bar")
