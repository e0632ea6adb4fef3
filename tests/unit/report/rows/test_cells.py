"""Cells as rows: ranges of opsets, groups, and the lowest opset that passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.gate.baseline_comparison import compare_results
from exporter.manifest.syntax.values import format_opsets
from exporter.records.baseline import Baseline, make_baseline
from exporter.records.record import Record
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    collect_cells,
    find_lowest_opset,
    group_by_opset,
    mask_numbers,
)
from exporter.report.rows.failures import group_findings
from tests.unit.factory import make_manifest, make_record, make_run, make_spec


@pytest.mark.parametrize(
    ("opsets", "text"),
    [([], ""), ([18], "18"), ([9, 10], "9..10"), ([13, 9, 10, 11, 9], "9..11, 13")],
)
def test_ranges(opsets: list[int], text: str) -> None:
    assert format_opsets(opsets) == text


@given(st.sets(st.integers(1, 40)))
def test_ranges_contain_exactly_the_opsets(opsets: set[int]) -> None:
    opsets_in_ranges: set[int] = set()
    for part in filter(None, format_opsets(opsets).split(", ")):
        low, _, high = part.partition("..")
        opsets_in_ranges |= set(range(int(low), int(high or low) + 1))
    assert opsets_in_ranges == opsets


def test_items_that_differ_only_in_their_opset_are_one_group() -> None:
    records = [
        make_record("a/10/cpu", "fail", message="off by 2"),
        make_record("a/9/cpu", "fail", message="off by 1"),
        make_record("a/9/cuda", "fail", message="off by 1"),
        make_record("a/12/cpu", "fail", message="something else"),
        make_record("b/9/cpu", "fail", message="off by 1"),
    ]
    groups = group_by_opset(
        records, lambda item: item.cell, lambda item: mask_numbers(item.message)
    )
    assert [group.label for group in groups] == ["a/9..10/cpu", "a/9/cuda", "a/12/cpu", "b/9/cpu"]
    assert groups[0].first.message == "off by 1"
    assert sum(len(group.members) for group in groups) == len(records)


def test_findings_of_different_kinds_are_different_groups() -> None:
    run = make_run(
        make_record("a/9/cpu"),
        make_record("a/10/cpu"),
        make_record("a/11/cpu", "error", message="opset 11 lacks Foo"),
        make_record("a/12/cpu", "error", message="opset 12 lacks Foo"),
        make_record("a/13/cpu", "error", message="opset 13 lacks Bar"),
    )
    findings = compare_results(Baseline(tools={}, cells=()), run, list(run.by_cell()))
    assert [group.label for group in group_findings(findings)] == [
        "a/11..12/cpu",
        "a/13/cpu",
        "a/9..10/cpu",
    ]


def test_only_numbers_are_masked() -> None:
    assert mask_numbers("opset 9: off by 1.2e-05") == mask_numbers("opset 10: off by 3.4e+07")
    assert mask_numbers("no Foo") != mask_numbers("no Bar")


@pytest.mark.parametrize(
    ("statuses", "lowest"),
    [
        ("pass pass pass", "17"),
        ("fail pass pass", "18"),
        ("pass fail pass", "19"),
        ("xfail xpass pass", "18"),
        ("skip skip pass", "19"),
        ("pass pass fail", ""),
        ("pass pass xfail", ""),
        ("pass pass unavailable", ""),
        ("pass pass", ""),
    ],
)
def test_the_lowest_opset_from_which_on_all_pass(statuses: str, lowest: str) -> None:
    records = [
        make_record(f"net/{opset}/cpu", status)
        for opset, status in zip((17, 18, 19), statuses.split(), strict=False)
    ]
    manifest = make_manifest(make_spec("net", opsets=(17, 18, 19)))
    (cells,) = collect_cells(manifest, make_run(*records)).values()
    assert find_lowest_opset(cells) == lowest


def test_opsets_beyond_the_runtime_do_not_count() -> None:
    statuses = {17: "pass", 18: "pass", 19: "unavailable"}
    records = {opset: make_record(f"net/{opset}/old", each) for opset, each in statuses.items()}
    cells = [
        Cell(id=record.cell, record=record, is_beyond_runtime=opset == 19)
        for opset, record in records.items()
    ]
    assert find_lowest_opset(cells) == "17"
    assert [cell.format_command("exporter {}") for cell in cells][2] == ""


OLD = {"torch": "2.12.1", "python": "3.11.15"}
NEW = {"torch": "2.13.0", "python": "3.11.15"}
GREEN, RED = make_record("net/17/cpu"), make_record("net/17/cpu", "fail", check="axes")
FIRST = make_baseline(make_run(GREEN, make_record("net/18/cpu", "error"), tools=OLD))


def cell(record: Record) -> Cell:
    return Cell(id=record.cell, record=record)


def test_without_a_baseline_the_text_is_empty() -> None:
    assert (
        AcceptanceHistory().find_outcome(cell(RED)),
        AcceptanceHistory().describe(cell(RED)),
    ) == (
        "",
        "",
    )


def test_a_changed_cell_names_the_accepted_outcome_and_the_tools() -> None:
    history = AcceptanceHistory(FIRST)
    assert history.find_outcome(cell(RED)) == "pass"
    assert history.describe(cell(RED)) == "pass in the baseline, with torch 2.12.1"


def test_a_new_cell_was_never_accepted() -> None:
    new = cell(make_record("net/19/cpu", "fail"))
    assert AcceptanceHistory(FIRST).find_outcome(new) == "not in the baseline"
    assert AcceptanceHistory(FIRST).describe(new) == "never accepted: it is not in the baseline"


def test_an_accepted_foreseen_failure_has_a_text_only_with_a_reason() -> None:
    foreseen = make_record("net/17/cpu", "xfail")
    accepted = make_baseline(make_run(foreseen))
    assert AcceptanceHistory(accepted).describe(cell(foreseen)) == ""
    assert (
        AcceptanceHistory(FIRST).describe(cell(foreseen))
        == "pass in the baseline, with torch 2.12.1"
    )
    (outcome,) = accepted.cells
    with_reason = accepted.model_copy(
        update={"cells": (outcome.model_copy(update={"reason": "why"}),)}
    )
    assert AcceptanceHistory(with_reason).describe(cell(foreseen)) == "as accepted: why"


def test_an_accepted_failure_has_its_reason() -> None:
    red = make_baseline(make_run(RED, tools=NEW))
    (outcome,) = red.cells
    second = red.model_copy(update={"cells": (outcome.model_copy(update={"reason": "see #12"}),)})
    assert AcceptanceHistory(second).describe(cell(RED)) == "as accepted: see #12"
    assert AcceptanceHistory(red).describe(cell(RED)) == "as accepted"
