"""The counts and shares of an audit."""

from __future__ import annotations

import pytest

from exporter.manifest import Device
from exporter.records.audit import Audit, Fate
from exporter.records.baseline import parse_cell
from exporter.tools.audit.protocol import AuditRequest, Tried, audit_of
from tests.unit.factory import make_spec


def audit(*tried: Tried) -> Audit:
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
    return audit_of(request, tried, {"torch": "2.13.0"})


def tried(fate: Fate, kind: str = "weight", by: str = "") -> Tried:
    return Tried(kind=kind, change="w[0] times 1.1", fate=fate, by=by, why="on other values: off")


def test_only_what_breaks_the_contract_counts_in_the_share() -> None:
    found = audit(
        *[tried(Fate.CAUGHT, by="parity")] * 3,
        tried(Fate.SURVIVED),
        tried(Fate.EQUIVALENT),
        tried(Fate.SAME),
        tried(Fate.WITHIN),
    )
    assert found.share == pytest.approx(3 / 4)
    assert found.share_of_moved == pytest.approx(3 / 5)
    assert (found.caught, found.unchanged, found.within) == (3, 2, 1)
    assert found.mutants == 7


def test_counts_stand_by_kind_and_by_check_and_survivors_in_full() -> None:
    found = audit(
        tried(Fate.CAUGHT, by="parity"),
        tried(Fate.CAUGHT, "header", by="opset"),
        tried(Fate.SURVIVED, "edge"),
    )
    assert {tally.kind: (tally.caught, tally.survived) for tally in found.tallies} == {
        "edge": (0, 1),
        "header": (1, 0),
        "weight": (1, 0),
    }
    assert found.by == {"opset": 1, "parity": 1}
    assert [(item.kind, item.why) for item in found.survivors] == [("edge", "on other values: off")]


def test_an_audit_is_read_as_it_was_written() -> None:
    found = audit(tried(Fate.CAUGHT, by="parity"), tried(Fate.SURVIVED))
    assert Audit.model_validate_json(found.to_json()) == found


def test_without_any_mutant_that_breaks_the_contract_nothing_was_missed() -> None:
    assert audit(tried(Fate.SAME)).share == 1
