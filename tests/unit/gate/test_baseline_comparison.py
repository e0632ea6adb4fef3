from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exporter.gate.baseline_comparison import (
    _compare,
    _CurrentResults,
    accept_all,
    accept_some,
    compare_results,
    find_drift,
)
from exporter.gate.finding import NO_RESULT, NOT_ACCEPTED, GateFinding
from exporter.manifest import DEFAULT_GATE, FindingKind, Gate, GatePolicy, ModelPolicy
from exporter.manifest.resolved.policy import LIMITS
from exporter.records.baseline import (
    AcceptedModel,
    Baseline,
    CellOutcome,
    Figures,
    build_baseline,
    extract_outcomes,
    make_baseline,
    parse_cell,
)
from exporter.records.record import (
    UNPROVED_PREFIX,
    CellId,
    CheckResult,
    Latency,
    Measurements,
    PeakMemory,
    Record,
    RunRecord,
    Stage,
    Status,
)
from tests.unit.factory import DYNAMO, TORCHSCRIPT, make_artifact, make_record, make_run

CELL = parse_cell("alexnet/18/cpu")
EMPTY = Baseline()
NO_STATE = AcceptedModel(tools={}, cells=())
UNPROVED = (Status.SKIP, Status.UNAVAILABLE)

statuses = st.sampled_from(Status)
cells = st.builds(
    CellId,
    model=st.sampled_from(["alexnet", "bert", "vit_tiny"]),
    opset=st.integers(9, 12),
    device=st.sampled_from(["cpu", "cuda"]),
)
records = st.builds(
    lambda cell, status, stage, check: make_record(cell, status, stage=stage, check=check),
    cells,
    statuses,
    st.none() | st.sampled_from(Stage),
    st.sampled_from([None, "parity", "axes"]),
)
runs = st.lists(records, unique_by=lambda record: record.cell).map(
    lambda records: make_run(*records)
)


def compare_cell(before: Record | None, after: Record | None) -> list[GateFinding]:
    """Return the findings for one promised cell."""
    run = make_run(*([after] if after else []))
    accepted = make_baseline(make_run(before)) if before else EMPTY
    return list(compare_results(accepted, run, [CELL]))


def find_kind(before: Status | str, after: Status | str, **fields: object) -> FindingKind | None:
    findings = compare_cell(make_record(CELL, before), make_record(CELL, after, **fields))
    assert len(findings) <= 1
    return findings[0].kind if findings else None


def list_cells(run: RunRecord) -> set[CellId]:
    return set(run.by_cell())


@given(runs)
def test_an_accepted_outcome_is_no_finding(run: RunRecord) -> None:
    assert compare_results(make_baseline(run), run, list_cells(run)) == ()


@given(runs, runs, st.sets(cells))
def test_each_missing_cell_is_a_finding(
    before: RunRecord, after: RunRecord, promised: set[CellId]
) -> None:
    findings = compare_results(make_baseline(before), after, promised)
    kinds = (FindingKind.MISSING, FindingKind.REMOVED)
    missing = {finding.cell for finding in findings if finding.kind in kinds}
    assert missing == (promised - list_cells(after)) | (list_cells(before) - list_cells(after)) | (
        list_cells(before) - promised
    )


@given(runs, runs)
def test_each_cell_is_unchanged_or_has_a_finding(before: RunRecord, after: RunRecord) -> None:
    accepted = make_baseline(before).by_cell()
    now = make_baseline(after).by_cell()
    findings = compare_results(make_baseline(before), after, accepted.keys() | now.keys())
    named = [finding.cell for finding in findings if finding.kind is not FindingKind.LOWEST_RAISED]
    assert len(named) == len(set(named))
    silent = (accepted.keys() | now.keys()) - set(named)
    for cell in silent:
        assert accepted[cell].status is now[cell].status
        if now[cell].status not in UNPROVED:
            assert accepted[cell] == now[cell]


@given(runs, st.data())
def test_each_change_of_a_green_cell_is_a_finding(run: RunRecord, data: st.DataObject) -> None:
    green = make_record(CELL)
    other = data.draw(statuses.filter(lambda status: status is not Status.PASS))
    accepted = make_baseline(make_run(*run.records, green))
    changed = make_run(*run.records, make_record(CELL, other))
    findings = compare_results(accepted, changed, list_cells(changed))
    assert [finding.cell for finding in findings] == [CELL]
    assert findings[0].is_blocking
    assert not findings[0].is_improvement


@given(statuses, statuses)
def test_a_changed_status_is_a_finding_in_both_directions(one: Status, other: Status) -> None:
    assume({one, other} != set(UNPROVED))  # from `skip` to `unavailable` no proof is lost
    forward, backward = find_kind(one, other), find_kind(other, one)
    assert (forward is None) == (backward is None) == (one is other)


@given(records, records)
def test_at_most_one_direction_is_an_improvement(one: Record, other: Record) -> None:
    one, other = (record.model_copy(update={"cell": CELL}) for record in (one, other))
    kinds = [
        finding.kind for pair in ((one, other), (other, one)) for finding in compare_cell(*pair)
    ]
    assert kinds.count(FindingKind.BETTER) <= 1
    assert kinds.count(FindingKind.NEWLY_RED) <= 1
    assert kinds.count(FindingKind.FIXED) <= 1
    if FindingKind.BETTER in kinds:
        assert FindingKind.WORSE in kinds


@given(runs, runs, st.randoms())
def test_the_order_of_records_has_no_effect(
    before: RunRecord, after: RunRecord, random: Random
) -> None:
    shuffled = list(after.records)
    random.shuffle(shuffled)
    planned = list_cells(after)
    assert compare_results(make_baseline(before), after, planned) == compare_results(
        make_baseline(before), make_run(*shuffled), sorted(planned, key=str)
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("pass", "fail", FindingKind.NEWLY_RED),
        ("pass", "inconclusive", FindingKind.NEWLY_RED),
        ("xfail", "crash", FindingKind.NEWLY_RED),
        ("skip", "fail", FindingKind.NEWLY_RED),
        ("unavailable", "error", FindingKind.NEWLY_RED),
        ("pass", "xfail", FindingKind.NEWLY_EXPECTED),
        ("fail", "xfail", FindingKind.NEWLY_EXPECTED),
        ("xfail", "pass", FindingKind.FIXED),
        ("fail", "pass", FindingKind.FIXED),
        ("skip", "pass", FindingKind.FIXED),
        ("pass", "xpass", FindingKind.XPASS),
        ("xfail", "xpass", FindingKind.XPASS),
        ("pass", "skip", FindingKind.NEWLY_SKIPPED),
        ("fail", "skip", FindingKind.NEWLY_SKIPPED),
        ("unavailable", "skip", FindingKind.NEWLY_SKIPPED),
        ("pass", "unavailable", FindingKind.NEWLY_UNAVAILABLE),
        ("fail", "error", FindingKind.WORSE),
        ("inconclusive", "fail", FindingKind.WORSE),
        ("error", "crash", FindingKind.WORSE),
        ("error", "fail", FindingKind.BETTER),
        ("xpass", "fail", FindingKind.WORSE),
        ("pass", "pass", None),
        ("fail", "fail", None),
        ("skip", "skip", None),
        ("skip", "unavailable", None),  # neither has a proof
        ("unavailable", "unavailable", None),
        ("xpass", "xpass", None),
    ],
)
def test_a_changed_status_has_its_kind(
    before: str, after: str, expected: FindingKind | None
) -> None:
    assert find_kind(before, after) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("error", Stage.LOAD), ("error", Stage.CONVERT), FindingKind.WORSE),
        (("error", Stage.CONVERT), ("error", Stage.LOAD), FindingKind.BETTER),
        # A later stage, but a crash: one worse criterion is enough.
        (("error", Stage.CONVERT), ("crash", Stage.LOAD), FindingKind.WORSE),
        (("crash", Stage.LOAD), ("error", Stage.CONVERT), FindingKind.WORSE),
        (("crash", Stage.LOAD), ("timeout", Stage.LOAD), FindingKind.CHANGED),
        (("timeout", None), ("timeout", Stage.LOAD), FindingKind.CHANGED),
        (("xfail", Stage.CONVERT), ("xfail", Stage.LOAD), FindingKind.CHANGED),
        # Each stage can discover that a device is missing.
        (("unavailable", Stage.LOAD), ("unavailable", None), None),
    ],
)
def test_stages_rank_failures(
    before: tuple[str, Stage | None], after: tuple[str, Stage | None], expected: FindingKind | None
) -> None:
    accepted = make_record(CELL, before[0], stage=before[1])
    findings = compare_cell(accepted, make_record(CELL, after[0], stage=after[1]))
    assert [finding.kind for finding in findings] == ([expected] if expected else [])


def test_a_different_check_is_a_changed_failure() -> None:
    before = make_record(CELL, "fail", check="parity")
    (finding,) = compare_cell(before, make_record(CELL, "fail", check="axes", message="off\nby 3"))
    assert (finding.kind, finding.before, finding.after) == (
        FindingKind.CHANGED,
        "fail at parity",
        "fail at parity (axes)",
    )
    assert finding.message == "off by 3"


def fail_checks(*failed: str, status: Status = Status.XFAIL) -> Record:
    checks = tuple(CheckResult(check=name, status=Status.FAIL) for name in failed)
    return make_record(CELL, status, stage=Stage.PARITY, check=failed[0], checks=checks)


@pytest.mark.parametrize(
    ("before", "after", "status", "expected"),
    [
        (["axes"], ["axes", "values"], Status.XFAIL, FindingKind.CHANGED),
        (["axes", "values"], ["axes"], Status.XFAIL, FindingKind.CHANGED),
        (["axes"], ["axes", "values"], Status.FAIL, FindingKind.WORSE),
        (["axes", "values"], ["axes"], Status.FAIL, FindingKind.BETTER),
        (["axes", "values"], ["axes", "cases"], Status.FAIL, FindingKind.CHANGED),
        (["axes", "values"], ["axes", "values"], Status.XFAIL, None),
        (["axes", "values"], ["axes", "values"], Status.FAIL, None),
    ],
)
def test_another_set_of_failing_checks_is_a_finding(
    before: list[str], after: list[str], status: Status, expected: FindingKind | None
) -> None:
    findings = compare_cell(fail_checks(*before, status=status), fail_checks(*after, status=status))
    assert [finding.kind for finding in findings] == ([expected] if expected else [])
    for finding in findings:
        assert finding.is_blocking
        assert finding.after == f"{status} at parity ({', '.join(after)})"


def test_a_baseline_without_the_set_accepts_only_the_deciding_check() -> None:
    """A baseline of format 2 does not contain the other checks."""
    (outcome,) = make_baseline(make_run(fail_checks("axes", "values"))).cells
    old = outcome.model_copy(update={"other_checks": ()})
    accepted = build_baseline([old], lambda _: NO_STATE)
    (finding,) = compare_results(accepted, make_run(fail_checks("axes", "values")), [CELL])
    assert (finding.kind, finding.is_blocking) == (FindingKind.CHANGED, True)
    assert not compare_results(accepted, make_run(fail_checks("axes")), [CELL])


def test_a_different_exporter_is_a_finding_if_both_are_known() -> None:
    before = make_record(CELL, route=TORCHSCRIPT)
    (finding,) = compare_cell(before, make_record(CELL, route=DYNAMO))
    assert finding.kind is FindingKind.REROUTED
    assert compare_cell(before, make_record(CELL, route=None)) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.PASS, FindingKind.NEW_GREEN),
        (Status.XFAIL, FindingKind.NEW_GREEN),
        (Status.XPASS, FindingKind.XPASS),
        (Status.FAIL, FindingKind.NEW_RED),
        (Status.CRASH, FindingKind.NEW_RED),
        (Status.SKIP, FindingKind.NEWLY_SKIPPED),
        (Status.UNAVAILABLE, FindingKind.NEWLY_UNAVAILABLE),
    ],
)
def test_a_new_cell_is_a_finding_until_accepted(status: Status, expected: FindingKind) -> None:
    (finding,) = compare_cell(None, make_record(CELL, status))
    assert (finding.kind, finding.before) == (expected, NOT_ACCEPTED)


def test_a_new_green_cell_shows_what_no_sample_proves() -> None:
    notes = ("tracer warning: a.py:3: b", f"{UNPROVED_PREFIX}condition `n <= 9`: too large")
    (finding,) = compare_cell(None, make_record(CELL, notes=notes))
    assert finding.message == notes[1]
    (finding,) = compare_cell(None, make_record(CELL, notes=notes[:1]))
    assert finding.message == ""


def test_the_message_of_a_missing_cell_depends_on_its_promise() -> None:
    (finding,) = compare_cell(make_record(CELL), None)
    assert (finding.kind, finding.before, finding.after) == (FindingKind.MISSING, "pass", NO_RESULT)
    assert "run `exporter export`" in finding.message
    (finding,) = compare_cell(None, None)
    assert (finding.kind, finding.before) == (FindingKind.MISSING, NOT_ACCEPTED)
    assert finding.after == NO_RESULT
    run = make_run(make_record(CELL))
    (dropped,) = compare_results(make_baseline(run), run, [])
    assert (dropped.kind, dropped.message) == (
        FindingKind.REMOVED,
        "no readable manifest contains the cell any more",
    )


def test_findings_are_in_order_of_kind_and_cell() -> None:
    before = make_run(*(make_record(f"{model}/{n}/cpu") for model in "ab" for n in (9, 10)))
    after = make_run(
        make_record("a/9/cpu", "skip"),
        make_record("b/10/cpu", "fail"),
        make_record("b/9/cpu", "fail"),
        make_record("c/9/cpu"),
    )
    findings = compare_results(make_baseline(before), after, list_cells(before) | list_cells(after))
    assert [(finding.kind, str(finding.cell)) for finding in findings] == [
        (FindingKind.NEWLY_RED, "b/9/cpu"),
        (FindingKind.NEWLY_RED, "b/10/cpu"),
        (FindingKind.MISSING, "a/10/cpu"),
        (FindingKind.NEWLY_SKIPPED, "a/9/cpu"),
        (FindingKind.NEW_GREEN, "c/9/cpu"),
    ]
    assert all(each.is_blocking for each in findings)


def test_a_long_message_is_cut_to_one_line() -> None:
    (finding,) = compare_cell(make_record(CELL), make_record(CELL, "fail", message="x\n" * 1000))
    assert len(finding.message) == 600
    assert "\n" not in finding.message


def test_the_signature_of_a_function_of_onnxruntime_is_no_reason() -> None:
    place = "/src/reshape_helper.h:39 onnxruntime::ReshapeHelper::ReshapeHelper(const Shape&, bool)"
    message = f"running Reshape node. Status Message: {place} input_shape_size == 3 was false."
    (finding,) = compare_cell(make_record(CELL), make_record(CELL, "fail", message=message))
    expected = "running Reshape node. Status Message: input_shape_size == 3 was false."
    assert finding.message == expected


def test_kinds_are_in_order_of_severity() -> None:
    improvements = [FindingKind.BETTER, FindingKind.FIXED, FindingKind.NEW_GREEN]
    assert [kind for kind in FindingKind if kind in improvements] == improvements


FIGURES: dict[str, Any] = {"bytes": 100_000, "nodes": 100, "ir_version": 8}
#: Each kind of drift, accepted figures, figures with drift and the nearest ones without.
DRIFT = [
    (FindingKind.ERROR_GROWN, {"error": 0.05}, {"error": 0.21}, {"error": 0.2}),
    (FindingKind.ERROR_GROWN, {"error": 0.0}, {"error": 0.11}, {"error": 0.1}),
    (FindingKind.FILE_GROWN, {}, {"bytes": 105_001}, {"bytes": 105_000}),
    (FindingKind.FILE_GROWN, {"bytes": 1000}, {"bytes": 5097}, {"bytes": 5096}),
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
    return list(_compare(build_baseline([before], lambda _: NO_STATE), current, gate))


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
    block = Gate(policy=GatePolicy(actions={kind: "block"}))
    (finding,) = find(*pair, block)
    assert finding.is_blocking
    assert find(*pair, Gate(policy=GatePolicy(actions={kind: "ignore"}))) == []
    ignored = ModelPolicy(models="alex*", actions={kind: "ignore"})
    assert find(*pair, Gate(policy=block.policy, models=(ignored,))) == []
    other = ModelPolicy(models="resnet*", actions={kind: "ignore"})
    assert len(find(*pair, Gate(policy=block.policy, models=(other,)))) == 1


def test_thresholds_come_from_the_policy() -> None:
    limits = dict.fromkeys(LIMITS, 10.0) | {FindingKind.NODES_GROWN: 1.0}
    gate = Gate(policy=GatePolicy(limits=limits))
    old = make_outcome(error=0.05, latency=1.0, load=1.0, memory=1.0)
    more = {"error": 0.4, "bytes": 900_000, "latency": 9.0, "load": 9.0, "memory": 9.0}
    assert [each.kind for each in find(old, make_outcome(nodes=101, **more), gate)] == [
        FindingKind.NODES_GROWN
    ]
    grown = [each.kind for each in find(old, make_outcome(nodes=101, **more))]
    assert grown == [kind for kind in LIMITS if kind is not FindingKind.NODES_GROWN]


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


@pytest.mark.parametrize(
    ("unmeasured", "measured"),
    [({"figures": None}, make_outcome(nodes=10**6)), ({}, make_outcome(latency=9.0))],
)
def test_what_one_side_has_not_measured_does_not_drift(
    unmeasured: dict[str, Any], measured: CellOutcome
) -> None:
    without = make_outcome().model_copy(update=unmeasured)
    assert find(without, measured) == find(measured, without) == []


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
    measurements = Measurements(
        latency=Latency(median=0.01, p95=0.02, ratio=0.4567, turns=5),
        memory=PeakMemory(bytes=1 << 20, ratio=1.234),
    )
    record = make_record(CELL, checks=checks, artifact=artifact, measurements=measurements)
    (extracted,) = extract_outcomes(make_run(record)).values()
    expected = {"domains": ("ai.onnx.ml", "x"), "error": 0.057, "latency": 0.46, "memory": 1.2}
    assert extracted.figures == Figures(bytes=1234, nodes=2, ir_version=10, load=None, **expected)


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
        updated = accept_all(accepted, extract_outcomes(run), accepted.models, DEFAULT_GATE)
        assert updated.cells == accepted.cells
    for size in (106_000, 90_000):
        run = make_run(make_file_record(size, 100))
        updated = accept_all(accepted, extract_outcomes(run), accepted.models, DEFAULT_GATE)
        assert updated == make_baseline(run)


def test_a_reason_remains_while_the_outcome_does() -> None:
    """Also if the figures are new ones; another outcome has no reason."""
    run = make_run(make_file_record(100_000, 100))
    accepted = accept_some(make_baseline(run), extract_outcomes(run), {CELL: "see #12"}, {})
    for record, reason in (
        (make_file_record(200_000, 100), "see #12"),
        (make_record(CELL, "fail"), ""),
    ):
        outcomes = extract_outcomes(make_run(record))
        (updated,) = accept_all(accepted, outcomes, accepted.models, DEFAULT_GATE).cells
        assert updated == outcomes[CELL].model_copy(update={"reason": reason})


def test_a_flaky_cell_is_a_finding_until_it_is_accepted() -> None:
    record = make_record(CELL, flaky="was fail at parity with the very same inputs")
    before = make_baseline(make_run(make_record(CELL)))
    (finding,) = compare_results(before, make_run(record), [CELL])
    assert (finding.kind, finding.is_blocking) == (FindingKind.FLAKY, True)
    assert "very same inputs" in finding.message
    assert compare_results(make_baseline(make_run(record)), make_run(record), [CELL]) == ()


@given(st.sampled_from(FindingKind))
def test_by_default_regressions_block_and_drift_warns(kind: FindingKind) -> None:
    drift = {each[0] for each in DRIFT} | {FindingKind.LOWEST_RAISED, FindingKind.REDEFINED}
    assert GatePolicy().find_action(kind) == ("warn" if kind in drift else "block")
