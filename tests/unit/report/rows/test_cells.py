"""Cells as rows: ranges of opsets, groups, and the lowest opset that passes."""

from __future__ import annotations

import pytest

from exporter.gate.baseline_comparison import compare_results
from exporter.records.baseline import Baseline, build_baseline, make_baseline
from exporter.records.record import Record
from exporter.report.pages.model_page import find_lowest_opset
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    collect_cells,
    group_by_opset,
    mask_numbers,
)
from exporter.report.rows.gate_rows import build_finding_rows
from tests.unit.factory import make_manifest, make_record, make_run, make_spec


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
    findings = compare_results(Baseline(), run, list(run.by_cell()))
    assert [row.subject for row in build_finding_rows(findings)] == [
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


def accept(record: Record, reason: str = "") -> Baseline:
    accepted = make_baseline(make_run(record, tools=NEW))
    (outcome,) = accepted.cells
    reasoned = outcome.model_copy(update={"reason": reason})
    return build_baseline([reasoned], accepted.models.__getitem__)


FORESEEN = make_record("net/17/cpu", "xfail")
CHANGED = "pass in the baseline, with torch 2.12.1"
NEVER = "never accepted: it is not in the baseline"


@pytest.mark.parametrize(
    ("baseline", "record", "outcome", "text"),
    [
        (None, RED, "", ""),
        (FIRST, RED, "pass", CHANGED),
        (FIRST, make_record("net/19/cpu", "fail"), "not in the baseline", NEVER),
        (FIRST, FORESEEN, "pass", CHANGED),
        (accept(FORESEEN), FORESEEN, "as accepted", ""),
        (accept(FORESEEN, "why"), FORESEEN, "as accepted", "as accepted: why"),
        (accept(RED, "see #12"), RED, "as accepted", "as accepted: see #12"),
        (accept(RED), RED, "as accepted", "as accepted"),
    ],
)
def test_the_history_of_a_cell(
    baseline: Baseline | None, record: Record, outcome: str, text: str
) -> None:
    history = AcceptanceHistory(baseline) if baseline else AcceptanceHistory()
    assert history.describe(cell(record)) == text
    assert history.find_outcome(cell(record)) == outcome


def test_drift_is_a_change_and_noise_is_none() -> None:
    accepted = make_record("net/17/cpu")
    assert accepted.artifact
    history = AcceptanceHistory(make_baseline(make_run(accepted)))
    for size, nodes, text in (
        (accepted.artifact.bytes, 2, ""),
        (accepted.artifact.bytes + 10, 2, ""),
        (90_000, 2, "file grown: 1,234 bytes -> 90,000 bytes"),
        (90_000, 3, "file grown: 1,234 bytes -> 90,000 bytes; nodes grown: 2 nodes -> 3 nodes"),
    ):
        artifact = accepted.artifact.model_copy(update={"bytes": size, "nodes": nodes})
        now = cell(accepted.model_copy(update={"artifact": artifact}))
        assert (history.describe(now), history.is_changed(now)) == (text, bool(text))
