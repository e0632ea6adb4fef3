"""An upgrade is compared with the results in place, cell by cell and file by file."""

from __future__ import annotations

import pytest

from exporter.commands.toolchains.upgrade_comparison import UpgradeComparison, compare_upgrade
from exporter.manifest import DEFAULT_GATE, FindingKind, Gate, GatePolicy
from exporter.records.baseline import parse_cell
from exporter.records.record import Record, Status
from tests.unit.factory import make_artifact, make_record, make_run

CELL = parse_cell("alexnet/18/cpu")
PASS, FAIL = make_record(CELL), make_record(CELL, Status.FAIL, check="values")
OTHER, CRASHED = make_record(CELL, Status.FAIL, check="axes"), make_record(CELL, Status.CRASH)
FORESEEN, PASSES = make_record(CELL, Status.XFAIL), make_record(CELL, Status.XPASS)
ABSENT = make_record(CELL, Status.UNAVAILABLE)


def compare(
    before: Record | None, after: Record | None, gate: Gate = DEFAULT_GATE
) -> UpgradeComparison:
    runs = (make_run(*filter(None, (record,))) for record in (before, after))
    return compare_upgrade(*runs, frozenset({CELL}), gate)


def test_equal_results_have_no_difference() -> None:
    comparison = compare(PASS, PASS)
    assert not comparison.findings
    assert not comparison.changed_files
    assert (comparison.cells, comparison.files) == (1, 1)


@pytest.mark.parametrize(
    ("before", "after", "kind", "is_loss"),
    [
        pytest.param(PASS, FAIL, FindingKind.NEWLY_RED, True, id="red"),
        pytest.param(PASS, ABSENT, FindingKind.NEWLY_UNAVAILABLE, True, id="unavailable"),
        pytest.param(PASS, None, FindingKind.MISSING, True, id="lost"),
        pytest.param(None, None, FindingKind.MISSING, True, id="without-results"),
        pytest.param(None, FAIL, FindingKind.NEW_RED, True, id="new"),
        pytest.param(FAIL, CRASHED, FindingKind.WORSE, True, id="worse"),
        pytest.param(FAIL, PASS, FindingKind.FIXED, False, id="fixed"),
        pytest.param(FORESEEN, PASSES, FindingKind.XPASS, False, id="passes"),
        pytest.param(FAIL, OTHER, FindingKind.CHANGED, False, id="changed"),
        pytest.param(PASS, FORESEEN, FindingKind.NEWLY_EXPECTED, False, id="foreseen"),
    ],
)
def test_only_a_loss_is_a_regression(
    before: Record | None, after: Record | None, kind: FindingKind, *, is_loss: bool
) -> None:
    comparison = compare(before, after)
    assert [each.kind for each in comparison.findings] == [kind]
    assert bool(comparison.regressions) is is_loss


def test_the_policy_of_the_project_decides() -> None:
    gate = Gate(policy=GatePolicy(actions={FindingKind.NEWLY_RED: "warn"}), models=())
    comparison = compare(PASS, FAIL, gate)
    assert [each.action for each in comparison.findings] == ["warn"]
    assert not comparison.regressions


def test_cells_that_are_not_selected_are_ignored() -> None:
    other = make_record("alexnet/17/cpu", Status.FAIL)
    comparison = compare_upgrade(make_run(PASS), make_run(PASS, other), {CELL}, DEFAULT_GATE)
    assert not comparison.findings


def test_a_changed_file_is_listed_with_its_operators() -> None:
    operators = {"Conv": 1, "Cast": 2}
    file = make_artifact("alexnet", 18, sha256="1" * 64, operators=operators)
    comparison = compare(PASS, make_record(CELL, artifact=file))
    assert [each.change for each in comparison.changed_files] == ["+2 Cast, -1 Relu"]
    file = make_artifact("alexnet", 18, sha256="1" * 64)
    comparison = compare(PASS, make_record(CELL, artifact=file))
    assert [each.change for each in comparison.changed_files] == [""]


@pytest.mark.parametrize(
    ("before", "after", "runtime"), [(9, 11, "1.15 -> 1.23"), (11, 9, ""), (10, 10, "")]
)
def test_a_file_that_needs_a_newer_runtime_is_named(before: int, after: int, runtime: str) -> None:
    old, new = (
        make_record(CELL, artifact=make_artifact("alexnet", 18, ir_version=version))
        for version in (before, after)
    )
    (outcome,) = compare(old, new).outcomes
    assert outcome.runtime == runtime


def test_other_weights_are_another_file() -> None:
    file = make_artifact("alexnet", 18, external_data=("weights-1.data",))
    assert compare(PASS, make_record(CELL, artifact=file)).changed_files


def test_only_tools_with_another_version_are_listed() -> None:
    old, new = ({"torch": "2.13.0", "onnx": version} for version in ("1.21", "1.22"))
    runs = (make_run(PASS, tools=tools) for tools in (old, new))
    comparison = compare_upgrade(*runs, {CELL}, DEFAULT_GATE)
    assert comparison.changed_tools == {"onnx": ("1.21", "1.22")}
