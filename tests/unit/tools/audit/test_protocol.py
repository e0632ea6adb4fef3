"""The counts and shares of an audit."""

from __future__ import annotations

import pytest

from exporter.manifest import Device
from exporter.records.audit import Audit, MutantOutcome
from exporter.records.baseline import parse_cell
from exporter.tools.audit.protocol import AuditRequest, MutantResult, summarize_audit
from tests.unit.factory import make_spec


def audit(*result: MutantResult) -> Audit:
    request = AuditRequest(
        cell=parse_cell("alexnet/17/cpu"),
        spec=make_spec(),
        device=Device(name="cpu", runtime="onnxruntime"),
        root="/project",
        original="/build/alexnet",
        folder="/build/.work/alexnet",
        mutants=9,
        seed=5,
        entry="digest",
    )
    return summarize_audit(request, result, {"torch": "2.13.0"})


def result(outcome: MutantOutcome, kind: str = "weight", check: str = "") -> MutantResult:
    return MutantResult(
        kind=kind,
        change="w[0] times 1.1",
        outcome=outcome,
        check=check,
        reason="on other values: off",
    )


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
    assert (summary.caught, summary.unchanged, summary.within) == (3, 2, 1)
    assert summary.mutants == 7


def test_mutants_are_counted_by_kind_and_by_check() -> None:
    summary = audit(
        result(MutantOutcome.CAUGHT, check="parity"),
        result(MutantOutcome.CAUGHT, "header", check="opset"),
        result(MutantOutcome.SURVIVED, "edge"),
    )
    assert {tally.kind: (tally.caught, tally.survived) for tally in summary.tallies} == {
        "edge": (0, 1),
        "header": (1, 0),
        "weight": (1, 0),
    }
    assert summary.caught_by == {"opset": 1, "parity": 1}
    assert [(item.kind, item.reason) for item in summary.survivors] == [
        ("edge", "on other values: off")
    ]


def test_an_audit_is_read_as_it_was_written() -> None:
    summary = audit(result(MutantOutcome.CAUGHT, check="parity"), result(MutantOutcome.SURVIVED))
    assert Audit.model_validate_json(summary.to_json()) == summary


def test_the_share_is_1_if_no_mutant_breaks_the_contract() -> None:
    assert audit(result(MutantOutcome.SAME)).share == 1
