from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExporterError
from exporter.gate import (
    NO_RESULT,
    NOT_ACCEPTED,
    GateFinding,
    Kind,
    blocking,
    judge,
)
from exporter.records.baseline import Baseline, baseline_of
from exporter.records.record import (
    Record,
    RunRecord,
    Stage,
    Status,
)
from tests.unit.factory import DYNAMO, TORCHSCRIPT, make_record, make_run

CELL = "alexnet/18/cpu"
NOTHING = Baseline(tools={}, cells=())
UNPROVED = (Status.SKIP, Status.UNAVAILABLE)

statuses = st.sampled_from(Status)
cells = st.builds(
    "{}/{}/{}".format,
    st.sampled_from(["alexnet", "bert", "vit_tiny"]),
    st.integers(9, 12),
    st.sampled_from(["cpu", "cuda"]),
)
records = st.builds(
    lambda cell, status, stage, check: make_record(cell, status, stage=stage, check=check),
    cells,
    statuses,
    st.none() | st.sampled_from(Stage),
    st.sampled_from([None, "parity", "axes"]),
)
runs = st.lists(records, unique_by=lambda record: str(record.cell)).map(
    lambda found: make_run(*found)
)


def judged(before: Record | None, after: Record | None) -> list[GateFinding]:
    """The findings for one cell that the manifests promise."""
    run = make_run(*([after] if after else []))
    accepted = baseline_of(make_run(before)) if before else NOTHING
    return list(judge(accepted, run, [CELL]))


def kind(before: Status | str, after: Status | str, **fields: object) -> Kind | None:
    found = judged(make_record(CELL, before), make_record(CELL, after, **fields))
    assert len(found) <= 1
    return found[0].kind if found else None


def names(run: RunRecord) -> set[str]:
    return set(run.by_cell())


@given(runs)
def test_what_was_accepted_is_no_finding(run: RunRecord) -> None:
    assert judge(baseline_of(run), run, names(run)) == ()


@given(runs, runs, st.sets(cells))
def test_no_cell_vanishes_in_silence(
    before: RunRecord, after: RunRecord, promised: set[str]
) -> None:
    findings = judge(baseline_of(before), after, promised)
    missing = {str(found.cell) for found in findings if found.kind is Kind.MISSING}
    assert missing == (promised - names(after)) | (names(before) - names(after)) | (
        names(before) - promised
    )


@given(runs, runs)
def test_every_cell_is_as_accepted_or_a_finding(before: RunRecord, after: RunRecord) -> None:
    accepted = baseline_of(before).by_cell()
    now = baseline_of(after).by_cell()
    findings = judge(baseline_of(before), after, accepted.keys() | now.keys())
    named = [str(found.cell) for found in findings if found.kind is not Kind.LOWEST_RAISED]
    assert len(named) == len(set(named))
    silent = (accepted.keys() | now.keys()) - set(named)
    for cell in silent:
        assert accepted[cell].status is now[cell].status
        if now[cell].status not in UNPROVED:
            assert accepted[cell] == now[cell]


@given(runs, st.data())
def test_any_change_of_one_green_cell_is_its_finding(run: RunRecord, data: st.DataObject) -> None:
    green = make_record(CELL)
    other = data.draw(statuses.filter(lambda status: status is not Status.PASS))
    accepted = baseline_of(make_run(*run.records, green))
    changed = make_run(*run.records, make_record(CELL, other))
    findings = judge(accepted, changed, names(changed))
    assert [str(found.cell) for found in findings] == [CELL]
    assert findings[0].blocks
    assert not findings[0].is_good_news


@given(statuses, statuses)
def test_a_changed_status_is_a_finding_both_ways(one: Status, other: Status) -> None:
    there, back = kind(one, other), kind(other, one)
    assert (there is None) == (back is None) == (one is other)


@given(records, records)
def test_worse_one_way_is_not_worse_the_other_way(one: Record, other: Record) -> None:
    cell = make_record(CELL).cell
    one, other = (record.model_copy(update={"cell": cell}) for record in (one, other))
    kinds = [found.kind for pair in ((one, other), (other, one)) for found in judged(*pair)]
    assert kinds.count(Kind.BETTER) <= 1
    assert kinds.count(Kind.NEWLY_RED) <= 1
    assert kinds.count(Kind.FIXED) <= 1
    if Kind.BETTER in kinds:
        assert Kind.WORSE in kinds


@given(runs, runs, st.randoms())
def test_the_order_of_records_says_nothing(
    before: RunRecord, after: RunRecord, random: Random
) -> None:
    shuffled = list(after.records)
    random.shuffle(shuffled)
    planned = names(after)
    assert judge(baseline_of(before), after, planned) == judge(
        baseline_of(before), make_run(*shuffled), sorted(planned)
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("pass", "fail", Kind.NEWLY_RED),
        ("pass", "inconclusive", Kind.NEWLY_RED),
        ("xfail", "crash", Kind.NEWLY_RED),
        ("skip", "fail", Kind.NEWLY_RED),
        ("unavailable", "error", Kind.NEWLY_RED),
        ("pass", "xfail", Kind.NEWLY_EXPECTED),
        ("fail", "xfail", Kind.NEWLY_EXPECTED),
        ("xfail", "pass", Kind.FIXED),
        ("fail", "pass", Kind.FIXED),
        ("skip", "pass", Kind.FIXED),
        ("pass", "xpass", Kind.XPASS),
        ("xfail", "xpass", Kind.XPASS),
        ("pass", "skip", Kind.NEWLY_SKIPPED),
        ("fail", "skip", Kind.NEWLY_SKIPPED),
        ("unavailable", "skip", Kind.NEWLY_SKIPPED),
        ("pass", "unavailable", Kind.NEWLY_UNAVAILABLE),
        ("skip", "unavailable", Kind.NEWLY_UNAVAILABLE),
        ("fail", "error", Kind.WORSE),
        ("inconclusive", "fail", Kind.WORSE),
        ("error", "crash", Kind.WORSE),
        ("error", "fail", Kind.BETTER),
        ("xpass", "fail", Kind.WORSE),
        ("pass", "pass", None),
        ("fail", "fail", None),
        ("skip", "skip", None),
        ("unavailable", "unavailable", None),
        ("xpass", "xpass", None),
    ],
)
def test_kinds_of_change(before: str, after: str, expected: Kind | None) -> None:
    assert kind(before, after) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("error", Stage.LOAD), ("error", Stage.CONVERT), Kind.WORSE),
        (("error", Stage.CONVERT), ("error", Stage.LOAD), Kind.BETTER),
        # Further on and dead there: worse in one way is worse.
        (("error", Stage.CONVERT), ("crash", Stage.LOAD), Kind.WORSE),
        (("crash", Stage.LOAD), ("error", Stage.CONVERT), Kind.WORSE),
        (("crash", Stage.LOAD), ("timeout", Stage.LOAD), Kind.CHANGED),
        (("timeout", None), ("timeout", Stage.LOAD), Kind.CHANGED),
        (("xfail", Stage.CONVERT), ("xfail", Stage.LOAD), Kind.CHANGED),
        # A device that is missing may be found so at any stage.
        (("unavailable", Stage.LOAD), ("unavailable", None), None),
    ],
)
def test_stages_say_how_far_it_came(
    before: tuple[str, Stage | None], after: tuple[str, Stage | None], expected: Kind | None
) -> None:
    accepted = make_record(CELL, before[0], stage=before[1])
    found = judged(accepted, make_record(CELL, after[0], stage=after[1]))
    assert [finding.kind for finding in found] == ([expected] if expected else [])


def test_another_check_is_another_failure() -> None:
    before = make_record(CELL, "fail", check="parity")
    (found,) = judged(before, make_record(CELL, "fail", check="axes", message="off\nby 3"))
    assert (found.kind, found.before, found.after) == (
        Kind.CHANGED,
        "fail at parity",
        "fail at parity (axes)",
    )
    assert found.message == "off by 3"


def test_another_exporter_is_a_finding_where_both_are_known() -> None:
    before = make_record(CELL, route=TORCHSCRIPT)
    (found,) = judged(before, make_record(CELL, route=DYNAMO))
    assert found.kind is Kind.REROUTED
    assert judged(before, make_record(CELL, route=None)) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.PASS, Kind.NEW_GREEN),
        (Status.XFAIL, Kind.NEW_GREEN),
        (Status.XPASS, Kind.XPASS),
        (Status.FAIL, Kind.NEW_RED),
        (Status.CRASH, Kind.NEW_RED),
        (Status.SKIP, Kind.NEWLY_SKIPPED),
        (Status.UNAVAILABLE, Kind.NEWLY_UNAVAILABLE),
    ],
)
def test_a_new_cell_is_a_finding_until_accepted(status: Status, expected: Kind) -> None:
    (found,) = judged(None, make_record(CELL, status))
    assert (found.kind, found.before) == (expected, NOT_ACCEPTED)


def test_what_is_missing_says_whether_it_is_still_promised() -> None:
    (found,) = judged(make_record(CELL), None)
    assert (found.kind, found.before, found.after) == (Kind.MISSING, "pass", NO_RESULT)
    assert "run `exporter export`" in found.message
    run = make_run(make_record(CELL))
    (dropped,) = judge(baseline_of(run), run, [])
    assert (dropped.kind, dropped.message) == (Kind.MISSING, "the manifests no longer promise it")


def test_a_promise_without_result_and_baseline_is_missing() -> None:
    (found,) = judge(NOTHING, make_run(), [CELL])
    assert (found.kind, found.before, found.after) == (Kind.MISSING, NOT_ACCEPTED, NO_RESULT)


def test_the_worst_comes_first_then_the_order_of_cells() -> None:
    before = make_run(*(make_record(f"{model}/{n}/cpu") for model in "ab" for n in (9, 10)))
    after = make_run(
        make_record("a/9/cpu", "skip"),
        make_record("b/10/cpu", "fail"),
        make_record("b/9/cpu", "fail"),
        make_record("c/9/cpu"),
    )
    findings = judge(baseline_of(before), after, names(before) | names(after))
    assert [(found.kind, str(found.cell)) for found in findings] == [
        (Kind.NEWLY_RED, "b/9/cpu"),
        (Kind.NEWLY_RED, "b/10/cpu"),
        (Kind.MISSING, "a/10/cpu"),
        (Kind.NEWLY_SKIPPED, "a/9/cpu"),
        (Kind.NEW_GREEN, "c/9/cpu"),
    ]
    assert blocking(findings) == findings


def test_two_records_for_a_cell_hide_nothing() -> None:
    run = make_run(make_record(CELL, "fail"), make_record(CELL, "pass"))
    with pytest.raises(ExporterError, match="twice"):
        judge(baseline_of(make_run(make_record(CELL))), run, [CELL])


def test_a_long_message_is_cut_to_one_line() -> None:
    (found,) = judged(make_record(CELL), make_record(CELL, "fail", message="x\n" * 1000))
    assert len(found.message) == 300
    assert "\n" not in found.message


def test_every_kind_has_its_place() -> None:
    assert [kind for kind in Kind if kind in (Kind.FIXED, Kind.NEW_GREEN, Kind.BETTER)] == [
        Kind.BETTER,
        Kind.FIXED,
        Kind.NEW_GREEN,
    ]
