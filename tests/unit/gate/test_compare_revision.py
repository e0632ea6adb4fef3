"""A branch cannot relax its own gate: what it asks less, and what it accepts by itself."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.gate import (
    GateFinding,
    Kind,
    Side,
    accept_some,
    judge_against,
    relaxations,
)
from exporter.manifest import (
    Axis,
    Bound,
    Case,
    Device,
    Expectation,
    Fill,
    Gate,
    GatePolicy,
    Input,
    InputsFrom,
    Manifest,
    ModelSpec,
    Override,
    ParameterNames,
    Project,
    Skip,
    Tolerance,
)
from exporter.records.baseline import Baseline, baseline_of, outcomes_of
from exporter.records.record import Record
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

CELLS = ("alexnet/17/cpu", "alexnet/18/cpu")
HAND = Tolerance(atol=1e-5, rtol=1e-4)
FORESEEN = Expectation(stage="convert", match="stft", reason="lacks it", until="2027-01-01")


def relaxed(before: dict[str, Any], after: dict[str, Any]) -> list[GateFinding]:
    sides = (make_manifest(make_spec(**fields)) for fields in (before, after))
    return list(relaxations(*sides))


def filled(name: str, **fill: Any) -> Input:
    fills = Fill(**{"kind": "normal", **fill})
    return Input(name=name, shape=("batch", 3), at=f"kwargs.{name}", fill=fills)


#: What is said before, and what of it lets more pass.
LOOSER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"tolerance": Tolerance(noise=20)}),
    ({}, {"tolerance": HAND}),
    ({}, {"tolerance": Tolerance(outside=0.01)}),
    ({"tolerance": HAND}, {}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-4, rtol=1e-4)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-5, rtol=1e-3)}),
    ({}, {"tolerance": Tolerance(by_dtype={"float32": Bound(noise=9)})}),
    ({}, {"tolerance": Tolerance(by_device={"cpu": Bound(noise=9)})}),
    ({}, {"overrides": (Override(opsets=(17, 18), tolerance=Tolerance(noise=9)),)}),
    ({}, {"expect": (FORESEEN,)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"until": ""}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"until": "2028-01-01"}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"match": ""}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"stage": None}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"stage": "load"}),)}),
    ({}, {"skip": (Skip(reason="slow"),)}),
    ({"thorough": True}, {}),
    ({"ir_version": 8}, {}),
    ({"ir_version": 8}, {"ir_version": 9}),
    ({}, {"axes": ()}),
    ({}, {"axes": (Axis(name="batch", example=3, min=2),)}),
    ({}, {"axes": (Axis(name="batch", example=3, max=64),)}),
    ({}, {"axes": (Axis(name="batch", example=4, multiple_of=2),)}),
    ({"cases": (Case(name="long"),)}, {}),
    ({"cases": (Case(name="long", axes={"batch": 90}),)}, {"cases": (Case(name="long"),)}),
    ({"latency": True}, {}),
    ({"axes": (Axis(name="batch", example=3, probe=(9,)),)}, {}),
    ({"parameters": ParameterNames(numbered="w{}")}, {}),
    (
        {"parameters": ParameterNames(numbered="w{}")},
        {"parameters": ParameterNames(patterns={"*.bias": "w{}"})},
    ),
    ({"inputs": (filled("image"),)}, {"inputs": (filled("image", kind="zeros"),)}),
    (
        {"inputs": (filled("image", kind="uniform", low=-1.0),)},
        {"inputs": (filled("image", kind="uniform"),)},
    ),
    ({"inputs": (filled("image"), filled("mask"))}, {"inputs": (filled("image"),)}),
    ({"inputs_from": InputsFrom(function="nets.py:inputs")}, {}),
    ({"devices": ("cpu",)}, {"devices": ("cuda",)}),
]


@pytest.mark.parametrize(("before", "after"), LOOSER)
def test_what_asks_less_is_found_in_each_cell(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    findings = relaxed(before, after)
    assert {str(each.cell) for each in findings} == set(CELLS)
    assert all(each.kind is Kind.RELAXED and each.blocks for each in findings)
    assert all(each.before != each.after for each in findings)


#: What is stricter, or says the same in other words.
STRICTER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tolerance": Tolerance(noise=20)}, {}),
    ({}, {"tolerance": Tolerance(noise=8)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-6, rtol=0)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-6, rtol=1e-4)}),
    ({}, {"tolerance": Tolerance(by_device={"cuda": Bound(noise=90)})}),
    ({"expect": (FORESEEN,)}, {}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"reason": "other"}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"until": "2026-12-31"}),)}),
    ({"skip": (Skip(reason="slow"),)}, {"skip": (Skip(reason="very slow"),)}),
    ({"skip": (Skip(reason="slow"),)}, {}),
    ({}, {"thorough": True}),
    ({}, {"ir_version": 8}),
    ({"axes": (Axis(name="batch", example=3, min=2, max=8),)}, {}),
    ({}, {"cases": (Case(name="long"),)}),
    ({}, {"parameters": ParameterNames(numbered="w{}"), "latency": True}),
    ({}, {"opsets": (16, 17, 18), "description": "a net", "timeout": 1.0}),
]


@pytest.mark.parametrize(("before", "after"), STRICTER)
def test_what_asks_as_much_is_nothing(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert relaxed(before, after) == []


def test_a_cell_and_a_model_that_are_gone() -> None:
    (gone,) = relaxed({}, {"opsets": (18,)})
    assert (str(gone.cell), gone.after) == ("alexnet/17/cpu", "no longer promised")
    both = relaxations(make_manifest(make_spec()), make_manifest(make_spec("other")))
    assert {str(each.cell) for each in both} == set(CELLS)


def with_gate(spec: ModelSpec, **said: Any) -> Manifest:
    manifest = make_manifest(spec)
    gate = Gate(policy=GatePolicy(**said))
    return manifest.model_copy(
        update={"project": manifest.project.model_copy(update={"gate": gate})}
    )


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"newly_red": "warn"}, "gate.newly_red = warn"),
        ({"file_grown": "ignore"}, "gate.file_grown = ignore"),
        ({"error_factor": 5.0}, "gate.error_factor = 5.0"),
        ({"accepted_here": "warn"}, "gate.accepted_here = warn"),
    ],
)
def test_a_looser_policy_is_found_and_a_stricter_one_is_not(
    said: dict[str, Any], text: str
) -> None:
    plain, loose = make_manifest(make_spec()), with_gate(make_spec(), **said)
    assert {each.after for each in relaxations(plain, loose)} == {text}
    assert relaxations(loose, plain) == ()


def test_a_device_that_is_less_strict() -> None:
    def manifest(**fields: Any) -> Manifest:
        device = Device(name="cpu", runtime="onnxruntime", **fields)
        project = Project(root="/project", devices=(device,))
        return Manifest(project=project, models=(make_spec(),))

    strict = manifest(providers=("A", "B"), strict=True)
    assert len(relaxations(strict, manifest(providers=("A", "B")))) == 2
    assert relaxations(manifest(providers=("A", "B")), strict) == ()
    assert len(relaxations(manifest(providers=("A",)), manifest(providers=("B",)))) == 2


def test_the_revisions_policy_judges_what_is_relaxed() -> None:
    loose = make_spec(thorough=False)
    for action in ("warn", "ignore"):
        then = with_gate(make_spec(thorough=True), relaxed=action)
        found = relaxations(then, make_manifest(loose))
        assert [each.action for each in found] == ([action] * 2 if action == "warn" else [])


# --- the branch's own baseline --------------------------------------------------------------------


def against(
    before: list[Record],
    now: list[Record],
    own: Baseline | None = None,
    accepted_here: str = "block",
) -> list[GateFinding]:
    manifest = with_gate(make_spec(), accepted_here=accepted_here)
    run = make_run(*now)
    then = Side(manifest=manifest, baseline=baseline_of(make_run(*before)))
    here = Side(manifest=manifest, baseline=own or then.baseline)
    return list(judge_against(then, here, run, CELLS))


GREEN = [make_record(cell) for cell in CELLS]
RED = [make_record(CELLS[0]), make_record(CELLS[1], "fail", message="off by 3")]


def test_a_baseline_of_the_branchs_own_hides_no_loss() -> None:
    (found,) = against(GREEN, RED, baseline_of(make_run(*RED)))
    assert (found.kind, str(found.cell), found.blocks) == (Kind.NEWLY_RED, CELLS[1], True)
    assert against(GREEN, GREEN) == []


def test_good_news_counts_where_the_branch_has_accepted_it() -> None:
    (found,) = against(RED, GREEN)
    assert found.kind is Kind.FIXED
    assert against(RED, GREEN, baseline_of(make_run(*GREEN))) == []


@pytest.mark.parametrize(("policy", "blocks"), [("block", [True]), ("warn", [False])])
def test_a_reason_counts_as_far_as_the_revision_says(policy: str, blocks: list[bool]) -> None:
    before = baseline_of(make_run(*GREEN))
    own = accept_some(before, outcomes_of(make_run(*RED)), [CELLS[1]], "known, see 12")
    found = against(GREEN, RED, own, policy)
    assert [each.blocks for each in found] == blocks
    assert found[0].message == "accepted here: known, see 12 (off by 3)"
    # Something else was accepted than what was found.
    error = [RED[0], make_record(CELLS[1], "error")]
    assert [each.blocks for each in against(GREEN, error, own, "warn")] == [True]
    # The branch's baseline says nothing of why.
    assert [each.blocks for each in against(GREEN, RED, baseline_of(make_run(*RED)), "warn")] == [
        True
    ]


def test_a_reason_of_before_speaks_of_something_else() -> None:
    old = accept_some(baseline_of(make_run(*GREEN)), outcomes_of(make_run(*GREEN)), CELLS, "why")
    then = Side(manifest=with_gate(make_spec(), accepted_here="warn"), baseline=old)
    loose = Side(manifest=make_manifest(make_spec(skip=(Skip(reason="slow"),))), baseline=old)
    findings = judge_against(then, loose, make_run(*GREEN), CELLS)
    assert {(each.kind, each.blocks) for each in findings} == {(Kind.RELAXED, True)}


def test_a_promise_that_is_given_up_with_a_reason() -> None:
    before = baseline_of(make_run(*GREEN))
    kept = outcomes_of(make_run(GREEN[1]))
    own = accept_some(before, kept, [CELLS[0]], "opset 17 is history")
    assert own.dropped == {CELLS[0]: "opset 17 is history"}
    then = Side(manifest=with_gate(make_spec(), accepted_here="warn"), baseline=before)
    here = Side(manifest=make_manifest(make_spec(opsets=(18,))), baseline=own)
    findings = judge_against(then, here, make_run(GREEN[1]), [CELLS[1]])
    missing = next(each for each in findings if each.kind is Kind.MISSING)
    assert (missing.blocks, "opset 17 is history" in missing.message) == (False, True)
    # It is said once, not as a relaxed contract as well.
    assert {each.kind for each in findings if str(each.cell) == CELLS[0]} == {
        Kind.MISSING,
        Kind.LOWEST_RAISED,
    }
