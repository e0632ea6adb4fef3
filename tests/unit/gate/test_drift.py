"""Drift of figures, and the policy for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.gate.baseline_comparison import (
    _compare,
    _CurrentResults,
    accept_all,
    compare_results,
    find_drift,
)
from exporter.gate.finding import FindingKind, GateFinding
from exporter.manifest import (
    DEFAULT_GATE,
    Gate,
    GatePolicy,
    ModelPolicy,
)
from exporter.records.baseline import (
    CellOutcome,
    Figures,
    extract_outcomes,
    make_baseline,
    parse_cell,
)
from exporter.records.record import (
    CellId,
    CheckResult,
    Latency,
    Measurements,
    PeakMemory,
    Record,
    Status,
)
from tests.unit.factory import make_artifact, make_record, make_run

CELL = parse_cell("alexnet/18/cpu")
FIGURES: dict[str, Any] = {"bytes": 100_000, "nodes": 100, "ir_version": 8}
#: Each kind of drift, accepted figures, figures with drift and the nearest ones without.
DRIFT = [
    (FindingKind.ERROR_GROWN, {"error": 0.05}, {"error": 0.21}, {"error": 0.2}),
    (FindingKind.ERROR_GROWN, {"error": 0.0}, {"error": 0.11}, {"error": 0.1}),
    (FindingKind.FILE_GROWN, {}, {"bytes": 105_001}, {"bytes": 105_000}),
    (FindingKind.NODES_GROWN, {}, {"nodes": 106}, {"nodes": 105}),
    (FindingKind.LATENCY_GROWN, {"latency": 0.5}, {"latency": 1.1}, {"latency": 1.0}),
    (FindingKind.LOAD_GROWN, {"load": 0.5}, {"load": 1.1}, {"load": 1.0}),
    (FindingKind.MEMORY_GROWN, {"memory": 2.0}, {"memory": 3.1}, {"memory": 3.0}),
    (FindingKind.NEW_DOMAIN, {}, {"domains": ("ai.onnx.ml",)}, {"domains": ()}),
    (FindingKind.FLOOR_RAISED, {}, {"ir_version": 10}, {"ir_version": 7}),
]

figures = st.builds(
    Figures,
    bytes=st.integers(0, 10**9),
    nodes=st.integers(0, 10**5),
    ir_version=st.integers(3, 20),
    domains=st.sets(st.sampled_from(["a", "b", "c"])).map(lambda names: tuple(sorted(names))),
    error=st.none() | st.floats(0, 100),
    latency=st.none() | st.floats(0.01, 100),
    load=st.none() | st.floats(0.01, 100),
    memory=st.none() | st.floats(0.01, 100),
)


def make_outcome(cell: CellId = CELL, **fields: Any) -> CellOutcome:
    return CellOutcome(cell=cell, status=Status.PASS, figures=Figures(**{**FIGURES, **fields}))


def find(before: CellOutcome, after: CellOutcome, gate: Gate = DEFAULT_GATE) -> list[GateFinding]:
    current = _CurrentResults(outcomes={after.cell: after}, promised=frozenset({after.cell}))
    return list(_compare({before.cell: before}, current, gate))


@pytest.mark.parametrize(("kind", "before", "more", "same"), DRIFT)
def test_drift_is_found_only_outside_the_limits(
    kind: FindingKind, before: dict[str, Any], more: dict[str, Any], same: dict[str, Any]
) -> None:
    (finding,) = find(make_outcome(**before), make_outcome(**{**before, **more}))
    assert (finding.kind, finding.action, finding.is_blocking) == (kind, "warn", False)
    assert finding.before != finding.after
    assert find(make_outcome(**before), make_outcome(**{**before, **same})) == []
    assert find(make_outcome(**{**before, **more}), make_outcome(**before)) == []


@pytest.mark.parametrize(("kind", "before", "more", "same"), DRIFT)
def test_each_drift_has_its_policy(
    kind: FindingKind, before: dict[str, Any], more: dict[str, Any], same: dict[str, Any]
) -> None:
    pair = (make_outcome(**before), make_outcome(**{**before, **more}))
    block = Gate(policy=GatePolicy(**{kind.key: "block"}))
    (finding,) = find(*pair, block)
    assert finding.is_blocking
    assert find(*pair, Gate(policy=GatePolicy(**{kind.key: "ignore"}))) == []
    ignored = ModelPolicy(models="alex*", values={kind.key: "ignore"})
    assert find(*pair, Gate(policy=block.policy, models=(ignored,))) == []
    other = ModelPolicy(models="resnet*", values={kind.key: "ignore"})
    assert len(find(*pair, Gate(policy=block.policy, models=(other,)))) == 1


def test_thresholds_come_from_the_policy() -> None:
    policy = GatePolicy(error_factor=10, error_floor=0, file_growth=0.5, node_growth=0)
    gate = Gate(policy=policy)
    more = make_outcome(error=0.4, bytes=140_000, nodes=101)
    assert [each.kind for each in find(make_outcome(error=0.05), more, gate)] == [
        FindingKind.NODES_GROWN
    ]


@given(figures)
def test_equal_figures_have_no_drift(same: Figures) -> None:
    one = CellOutcome(cell=CELL, status=Status.PASS, figures=same)
    assert not list(find_drift(one, one, GatePolicy()))


@given(figures, figures)
def test_no_figure_drifts_in_both_directions(one: Figures, other: Figures) -> None:
    both = [CellOutcome(cell=CELL, status=Status.PASS, figures=each) for each in (one, other)]
    forward = {drift.kind for drift in find_drift(*both, GatePolicy())}
    backward = {drift.kind for drift in find_drift(*reversed(both), GatePolicy())}
    assert forward & backward <= {FindingKind.NEW_DOMAIN}


def test_a_small_file_may_grow_by_4096_bytes() -> None:
    assert find(make_outcome(bytes=1000), make_outcome(bytes=5096)) == []
    assert len(find(make_outcome(bytes=1000), make_outcome(bytes=5097))) == 1


def test_a_cell_without_figures_has_no_drift() -> None:
    without = make_outcome().model_copy(update={"figures": None})
    assert find(without, make_outcome(nodes=10**6)) == []
    assert find(make_outcome(), without) == []


def test_a_red_cell_has_a_finding_but_no_drift() -> None:
    red = make_outcome(nodes=10**6).model_copy(update={"status": Status.FAIL})
    assert [each.kind for each in find(make_outcome(), red)] == [FindingKind.NEWLY_RED]


def test_a_different_route_hides_no_drift() -> None:
    before = make_outcome().model_copy(update={"exporter": "dynamo", "capture": "export"})
    after = make_outcome(nodes=200).model_copy(update={"exporter": "dynamo", "capture": "strict"})
    rerouted, grown = find(before, after)
    assert (rerouted.kind, rerouted.before, rerouted.after) == (
        FindingKind.REROUTED,
        "pass by dynamo, capture export",
        "pass by dynamo, capture strict",
    )
    assert grown.kind is FindingKind.NODES_GROWN


def test_the_lowest_opset_is_raised_if_a_lower_one_fails() -> None:
    before = make_run(*(make_record(f"a/{opset}/cpu") for opset in (9, 10, 11)))
    after = make_run(
        make_record("a/9/cpu"), make_record("a/10/cpu", "skip"), make_record("a/11/cpu")
    )
    kinds = {
        each.kind: each for each in compare_results(make_baseline(before), after, after.by_cell())
    }
    assert set(kinds) == {FindingKind.NEWLY_SKIPPED, FindingKind.LOWEST_RAISED}
    raised = kinds[FindingKind.LOWEST_RAISED]
    assert (str(raised.cell), raised.before, raised.after) == (
        "a/9/cpu",
        "from opset 9",
        "from opset 11",
    )
    assert FindingKind.LOWEST_RAISED not in {
        each.kind for each in compare_results(make_baseline(after), before, before.by_cell())
    }


def test_figures_come_from_the_record() -> None:
    checks = tuple(
        CheckResult(check=name, status=Status.PASS, metrics={"of_limit": value})
        for name, value in (("parity", 0.01234), ("axes", 0.0567), ("values", 0.001))
    )
    artifact = make_artifact("a", 18, operators={"Conv": 2, "ai.onnx.ml::Scaler": 1, "x::Y": 1})
    record = make_record("a/18/cpu", checks=checks, artifact=artifact)
    (extracted,) = extract_outcomes(make_run(record)).values()
    assert extracted.figures == Figures(
        bytes=1234, nodes=2, ir_version=10, domains=("ai.onnx.ml", "x"), error=0.057
    )


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "much"])
def test_an_error_without_a_finite_value_is_none(value: float | str) -> None:
    check = CheckResult(check="parity", status=Status.FAIL, metrics={"of_limit": value})
    (extracted,) = extract_outcomes(
        make_run(make_record("a/18/cpu", "fail", checks=(check,)))
    ).values()
    assert extracted.figures is not None
    assert extracted.figures.error is None


def make_file_record(bytes: int, nodes: int) -> Record:
    return make_record(CELL, artifact=make_artifact("alexnet", 18, bytes=bytes, nodes=nodes))


def test_figures_within_the_limits_keep_their_accepted_value() -> None:
    accepted = make_baseline(make_run(make_file_record(100_000, 100)))
    for size in (103_000, 104_900, 100_000, 97_000):
        run = make_run(make_file_record(size, 100))
        assert accept_all(accepted, extract_outcomes(run), run.tools, DEFAULT_GATE).cells == (
            accepted.cells
        )
    for size in (106_000, 90_000):
        run = make_run(make_file_record(size, 100))
        updated = accept_all(accepted, extract_outcomes(run), run.tools, DEFAULT_GATE)
        assert updated == make_baseline(run)


def test_an_expired_expectation_is_a_finding() -> None:
    over = "the expectation expired on 2026-01-01: needs opset 14"
    record = make_record(CELL, "fail", expectation=over, message="off by 3")
    before = make_baseline(make_run(make_record(CELL, "xfail")))
    (finding,) = compare_results(before, make_run(record), [CELL])
    assert (finding.kind, finding.message) == (FindingKind.EXPIRED, f"{over}: off by 3")
    other = record.model_copy(update={"expectation": "expected a failure at convert"})
    assert compare_results(before, make_run(other), [CELL])[0].kind is FindingKind.NEWLY_RED


def test_a_flaky_cell_is_a_finding_until_it_is_accepted() -> None:
    record = make_record(CELL, flaky="was fail at parity with the very same inputs")
    before = make_baseline(make_run(make_record(CELL)))
    (finding,) = compare_results(before, make_run(record), [CELL])
    assert (finding.kind, finding.is_blocking) == (FindingKind.FLAKY, True)
    assert "very same inputs" in finding.message
    assert compare_results(make_baseline(make_run(record)), make_run(record), [CELL]) == ()


def test_every_kind_has_a_policy_and_every_policy_a_kind() -> None:
    others = {"accepted_here", "error_factor", "error_floor", "file_growth", "latency_factor"}
    others |= {"node_growth", "load_factor", "memory_factor"}
    assert {kind.key for kind in FindingKind} | others == set(GatePolicy.model_fields)


@given(st.sampled_from(FindingKind))
def test_by_default_regressions_block_and_drift_warns(kind: FindingKind) -> None:
    drift = {each[0] for each in DRIFT} | {FindingKind.LOWEST_RAISED, FindingKind.REDEFINED}
    assert kind.find_action(GatePolicy()) == ("warn" if kind in drift else "block")


def test_an_unmeasured_latency_has_not_grown() -> None:
    assert find(make_outcome(), make_outcome(latency=9.0)) == []
    assert find(make_outcome(latency=9.0), make_outcome()) == []


def test_ratios_come_from_the_measurements() -> None:
    measurements = Measurements(
        latency=Latency(median=0.01, p95=0.02, ratio=0.4567, turns=5),
        memory=PeakMemory(bytes=1 << 20, ratio=1.234),
    )
    record = make_record(CELL, measurements=measurements)
    (extracted,) = extract_outcomes(make_run(record)).values()
    assert extracted.figures is not None
    ratios = extracted.figures.latency, extracted.figures.load, extracted.figures.memory
    assert ratios == (0.46, None, 1.2)
