"""The counts and shares of an audit."""

from __future__ import annotations

import pytest

from benchmarks.audit.results import Audit, MutantOutcome, MutantResult
from exporter.records.baseline import parse_cell


def audit(*results: MutantResult) -> Audit:
    return Audit(parse_cell("alexnet/17/cpu"), results)


def result(outcome: MutantOutcome, kind: str = "weight", check: str = "") -> MutantResult:
    reason = "on other values: off"
    return MutantResult(kind=kind, change="w 1.1", outcome=outcome, check=check, reason=reason)


def test_only_mutants_that_break_the_contract_count_in_the_share() -> None:
    summary = audit(
        *[result(MutantOutcome.CAUGHT, check="parity")] * 3,
        result(MutantOutcome.SURVIVED),
        result(MutantOutcome.EQUIVALENT),
        result(MutantOutcome.SAME),
        result(MutantOutcome.WITHIN),
    )
    assert summary.share == pytest.approx(3 / 4)
    assert summary.share_of_moved == pytest.approx(3 / 5)


def test_mutants_are_counted_by_kind_and_by_check() -> None:
    caught = MutantOutcome.CAUGHT
    summary = audit(
        result(caught, check="parity"),
        result(caught, "header", check="opset"),
        result(MutantOutcome.SURVIVED, "edge"),
    )
    counts = summary.count_outcomes()
    assert list(counts) == ["edge", "header", "weight"]
    assert (counts["edge"][caught], counts["header"][caught]) == (0, 1)
    assert summary.count_checks() == {"opset": 1, "parity": 1}
    assert [item.kind for item in summary.survivors] == ["edge"]


def test_the_share_is_1_if_no_mutant_breaks_the_contract() -> None:
    assert audit(result(MutantOutcome.SAME)).share == 1
