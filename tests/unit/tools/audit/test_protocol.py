"""The counts and shares of an audit."""

from __future__ import annotations

import pytest

from exporter.manifest import Device
from exporter.records.audit import Audit, MutantOutcome
from exporter.records.baseline import parse_cell
from exporter.tools.audit.protocol import AuditRequest, MutantResult, summarize_audit
from tests.unit.factory import make_spec


def audit(*tried: MutantResult) -> Audit:
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
    return summarize_audit(request, tried, {"torch": "2.13.0"})


def tried(outcome: MutantOutcome, kind: str = "weight", check: str = "") -> MutantResult:
    return MutantResult(
        kind=kind,
        change="w[0] times 1.1",
        outcome=outcome,
        check=check,
        reason="on other values: off",
    )


def test_only_what_breaks_the_contract_counts_in_the_share() -> None:
    found = audit(
        *[tried(MutantOutcome.CAUGHT, check="parity")] * 3,
        tried(MutantOutcome.SURVIVED),
        tried(MutantOutcome.EQUIVALENT),
        tried(MutantOutcome.SAME),
        tried(MutantOutcome.WITHIN),
    )
    assert found.share == pytest.approx(3 / 4)
    assert found.share_of_moved == pytest.approx(3 / 5)
    assert (found.caught, found.unchanged, found.within) == (3, 2, 1)
    assert found.mutants == 7


def test_counts_stand_by_kind_and_by_check_and_survivors_in_full() -> None:
    found = audit(
        tried(MutantOutcome.CAUGHT, check="parity"),
        tried(MutantOutcome.CAUGHT, "header", check="opset"),
        tried(MutantOutcome.SURVIVED, "edge"),
    )
    assert {tally.kind: (tally.caught, tally.survived) for tally in found.tallies} == {
        "edge": (0, 1),
        "header": (1, 0),
        "weight": (1, 0),
    }
    assert found.by == {"opset": 1, "parity": 1}
    assert [(item.kind, item.why) for item in found.survivors] == [("edge", "on other values: off")]


def test_an_audit_is_read_as_it_was_written() -> None:
    found = audit(tried(MutantOutcome.CAUGHT, check="parity"), tried(MutantOutcome.SURVIVED))
    assert Audit.model_validate_json(found.to_json()) == found


def test_without_any_mutant_that_breaks_the_contract_nothing_was_missed() -> None:
    assert audit(tried(MutantOutcome.SAME)).share == 1
