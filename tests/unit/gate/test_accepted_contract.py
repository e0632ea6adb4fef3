"""The baseline contains entries and the values of weights, so the plain gate sees a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.api.revision_comparison import ProjectState, compare_with_revision
from exporter.gate.accepted_contract import describe_states
from exporter.gate.baseline_comparison import (
    accept_all,
    accept_some,
    compare_results,
    list_accepted,
)
from exporter.gate.finding import GateFinding
from exporter.manifest import DEFAULT_GATE, Device, Expectation, FindingKind, Manifest
from exporter.manifest.resolved.call import Fill
from exporter.records.baseline import Baseline, extract_outcomes, read_baseline, write_baseline
from exporter.records.record import INITIAL_WEIGHTS, RunRecord, Source
from tests.unit.api.test_revision_comparison import (
    CELLS,
    FORESEEN,
    LOOSER,
    STRICTER,
    with_gate,
)
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec


def make_results(*, initial: bool = False) -> RunRecord:
    """Return a file of each cell, with loaded weights or drawn ones."""
    notes = (f"{INITIAL_WEIGHTS} of seed 0",) if initial else ()
    files = [make_artifact(cell.model, cell.opset) for cell in CELLS]
    return make_run(
        *(
            make_record(each, artifact=file, notes=notes)
            for each, file in zip(CELLS, files, strict=True)
        )
    )


LOADED, INITIAL = make_results(), make_results(initial=True)
EMPTY = Baseline()


def accept(manifest: Manifest, run: RunRecord = LOADED) -> Baseline:
    states = describe_states(manifest, run, EMPTY)
    return accept_all(EMPTY, extract_outcomes(run), states, DEFAULT_GATE)


def compare(
    accepted: Baseline, manifest: Manifest, run: RunRecord = LOADED
) -> list[tuple[str, str, str]]:
    """Return the findings of the plain gate, without their cells."""
    states = describe_states(manifest, run, accepted)
    findings = compare_results(accepted, run, CELLS, manifest.project.gate, states)
    assert {each.cell for each in findings} in (set(), {*CELLS})
    return list(dict.fromkeys((str(each.kind), each.before, each.after) for each in findings))


def make(**fields: Any) -> Manifest:
    return make_manifest(make_spec(**fields))


#: Changes that the cells show, and measurements.
UNSTORED = ("opsets", "devices", "measure")


@pytest.mark.parametrize(
    ("before", "after"),
    [each for each in (*LOOSER, *STRICTER) if not {*UNSTORED} & {*each[0], *each[1]}],
)
def test_every_edit_of_a_promise_is_a_finding_until_it_is_accepted(
    before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    old, new = make(**before), make(**after)
    write_baseline(tmp_path, accept(old))
    stored = read_baseline(tmp_path)
    assert compare(stored, old) == []
    is_text = {
        repr(each).replace("lacks it", "other").replace("very ", "") for each in (before, after)
    }
    findings = compare(stored, new)
    assert bool(findings) is (len(is_text) == 2)
    assert {kind for kind, *_ in findings} <= {"contract changed"}
    assert all(first != second for _, first, second in findings)
    assert compare(accept(new), new) == []


def test_the_words_of_a_finding_are_the_keys_of_the_entry() -> None:
    accepted = accept(make(weights="net.pt", weights_sha256="ab"))
    assert compare(accepted, make(seed=7)) == [
        ("contract changed", "seed: none", "seed: 7"),
        ("contract changed", "weights: net.pt", "weights: none"),
        ("contract changed", "weights_sha256: ab", "weights_sha256: none"),
    ]
    device = Device(name="cpu", runtime="onnxruntime", device="x")
    manifest = make()
    project = manifest.project.model_copy(update={"devices": (device,)})
    other = manifest.model_copy(update={"project": project})
    ((_, _, text),) = compare(accept(manifest), other)
    assert "device = x" in text


def test_texts_limits_measurements_and_routes_of_an_entry_are_no_promises() -> None:
    foreseen = (FORESEEN,)
    plain = make(expect=foreseen)
    texts = (Expectation(**{**FORESEEN.model_dump(), "reason": "other"}),)
    other = make(expect=texts, description="x", owner="y", tags=("z",), timeout=1.0, memory=9)
    assert compare(accept(plain), other) == []
    assert compare(accept(plain), make(expect=foreseen, exporter="dynamo", capture="strict")) == []


def test_an_older_baseline_has_nothing_to_compare() -> None:
    accepted = accept(make())
    old = Baseline(
        models={
            name: each.model_copy(update={"contract": {}, "weights": ""})
            for name, each in accepted.models.items()
        }
    )
    assert (accepted.without_contract, old.without_contract) == ([], list(old.models))
    assert compare(old, make(seed=7), INITIAL) == []
    assert list_accepted(old, accepted) == ()


def test_initial_values_in_place_of_loaded_weights_are_weaker() -> None:
    loaded, initial = "values of the weights: loaded", "values of the weights: initial"
    assert compare(accept(make()), make(), INITIAL) == [("contract relaxed", loaded, initial)]
    assert compare(accept(make(), INITIAL), make()) == [("contract changed", initial, loaded)]
    assert compare(accept(make(), INITIAL), make(), INITIAL) == []
    # Without a file, the values are unknown, and accepted cells keep the known ones.
    red = make_run(*(make_record(each, "error") for each in CELLS))
    states = describe_states(make(), red, accept(make()))
    assert (
        accept_all(accept(make()), extract_outcomes(red), states, DEFAULT_GATE)
        .models[CELLS[0].model]
        .weights
        == "loaded"
    )


def with_weights(digit: str, file: str = "manifests/net.pt") -> RunRecord:
    source = Source(file=file, state=digit * 64)
    return make_run(*(each.model_copy(update={"sources": (source,)}) for each in LOADED.records))


def test_a_swapped_file_of_weights_is_retrained_also_if_git_does_not_have_it() -> None:
    entry = make(weights="net.pt")
    one, two = with_weights("1"), with_weights("2")
    accepted = accept(entry, one)
    before, after = (f"weights file net.pt: {digit * 12}" for digit in "12")
    assert compare(accepted, entry, one) == []
    assert compare(accepted, entry, two) == [("model redefined", before, after)]
    assert compare(accept(entry, two), entry, two) == []
    # The digest is unknown here, or initial values replace the file: the accepted one stays.
    lacking = make(weights="net.pt", lacks_weights=True)
    for manifest, run in ((entry, LOADED), (entry, with_weights("")), (lacking, INITIAL)):
        assert compare(accepted, manifest, run) == []
        states = describe_states(manifest, run, accepted)
        assert {each.weights_sha256 for each in states.values()} == {"1" * 64}
    # An older baseline has none, and an entry that names the digest is red with another file.
    assert compare(accept(entry), entry, two) == []
    named = accept(make(weights="net.pt", weights_sha256="1" * 64), one)
    assert {each.weights_sha256 for each in named.models.values()} == {""}


def test_a_swapped_file_that_the_source_reads_itself_is_retrained() -> None:
    one, two = (with_weights(digit, "checkpoints/net.pt") for digit in "12")
    before, after = (f"weights file of the source: {digit * 12}" for digit in "12")
    assert compare(accept(make(), one), make(), one) == []
    assert compare(accept(make(), one), make(), two) == [("model redefined", before, after)]
    # Two files are two changes of one model.
    three = Source(file="other.ckpt", state="3" * 64)
    both, other = (
        make_run(
            *(each.model_copy(update={"sources": (*each.sources, three)}) for each in run.records)
        )
        for run in (one, two)
    )
    assert compare(accept(make(), both), make(), both) == []
    assert [kind for kind, *_ in compare(accept(make(), both), make(), other)] == [
        "model redefined"
    ]
    # Data is no file of weights, and neither are tensors of inputs.
    data = [with_weights(digit, "vocabulary.json") for digit in "12"]
    assert compare(accept(make(), data[0]), make(), data[1]) == []
    first, *others = make().models[0].inputs
    drawn = first.model_copy(update={"fill": Fill(kind="file", file="images.pt")})
    entry = make(inputs=(drawn, *others))
    tensors = [with_weights(digit, "manifests/images.pt") for digit in "12"]
    assert compare(accept(entry, tensors[0]), entry, tensors[1]) == []


@pytest.mark.parametrize(
    ("revision", "branch", "expected"),
    [
        ("1", "1", set()),
        ("1", "2", {("model redefined", f"weights file net.pt: {'2' * 12}", False)}),
    ],
)
def test_a_branch_with_other_weights_than_accepted_at_the_revision_is_retrained(
    revision: str, branch: str, expected: set[tuple[str, str, bool]]
) -> None:
    entry, run = make(weights="net.pt"), with_weights(branch)
    before = ProjectState(manifest=entry, baseline=accept(entry, with_weights(revision)))
    own = accept(entry, run)
    states = describe_states(entry, run, own)
    after = ProjectState(manifest=entry, baseline=own, states=states)
    findings = compare_with_revision(before, after, run, CELLS)
    assert {(str(each.kind), each.after, each.is_blocking) for each in findings} == expected
    # If git has the files, their contents are compared, and the finding is not there twice.
    key = (FindingKind.REDEFINED, "weights file manifests/net.pt")
    before, after = (
        replace(each, hashes={CELLS[0].model: {key: digit * 64}})
        for each, digit in ((before, revision), (after, branch))
    )
    findings = compare_with_revision(before, after, run, CELLS)
    assert len(findings) == len(expected) * len(CELLS)


def compare_branch(
    before: Manifest, now: Manifest, run: RunRecord, accepted: Baseline
) -> set[tuple[str, str, bool]]:
    revision = ProjectState(manifest=before, baseline=accept(before))
    states = describe_states(now, run, accepted)
    branch = ProjectState(manifest=now, baseline=accepted, states=states)
    findings: tuple[GateFinding, ...] = compare_with_revision(revision, branch, run, CELLS)
    return {(str(each.kind), each.after, each.is_blocking) for each in findings}


TRAINED = {"weights": "net.pt", "weights_sha256": "ab"}
RELAXED, REDEFINED = str(FindingKind.RELAXED), str(FindingKind.REDEFINED)


@pytest.mark.parametrize(
    ("before", "after", "run", "expected"),
    [
        # The branch accepts each of these.
        (TRAINED, {"weights": "net.pt"}, LOADED, {(RELAXED, "weights_sha256: none", True)}),
        (
            {"weights": "net.pt"},
            {},
            INITIAL,
            {
                (RELAXED, "weights: none", True),
                (RELAXED, "values of the weights: initial", True),
            },
        ),
        ({}, {}, INITIAL, {(RELAXED, "values of the weights: initial", True)}),
        ({}, {"weights": "net.pt"}, LOADED, {(REDEFINED, "weights: net.pt", False)}),
        (
            TRAINED,
            {**TRAINED, "weights_sha256": "cd"},
            LOADED,
            {(REDEFINED, "weights_sha256: cd", False)},
        ),
        ({}, {"seed": 7}, LOADED, {(REDEFINED, "seed: 7", False)}),
        ({}, {"thorough": True}, LOADED, set()),
    ],
)
def test_a_weaker_model_blocks_even_if_the_branch_accepts_it(
    before: dict[str, Any],
    after: dict[str, Any],
    run: RunRecord,
    expected: set[tuple[str, str, bool]],
) -> None:
    old, new = make(**before), make(**after)
    assert compare_branch(old, new, run, accept(new, run)) == expected
    loose = with_gate(make_spec(**before), relaxed="warn")
    assert not any(blocks for *_, blocks in compare_branch(loose, new, run, accept(new, run)))
    # Without acceptance, every edit blocks.
    if before != after:
        kinds = {kind for kind, _, blocks in compare_branch(old, new, run, accept(old)) if blocks}
        assert "contract changed" in kinds


def test_the_differences_of_two_baselines_are_listed_with_reasons() -> None:
    old, new = accept(make()), accept(make(thorough=True), INITIAL)
    red = make_run(make_record(CELLS[0]), make_record(CELLS[1], "fail"))
    states = describe_states(make(thorough=True), red, new)
    new = accept_some(new, extract_outcomes(red), {CELLS[1]: "see 12"}, states)
    listed = {
        (str(each.kind), each.before, each.after, each.message)
        for each in list_accepted(old, new)
        if each.cell == CELLS[1]
    }
    assert listed == {
        ("newly red", "pass", "fail at parity", "see 12"),
        ("contract changed", "thorough: none", "thorough: true", "see 12"),
        (
            "contract relaxed",
            "values of the weights: loaded",
            "values of the weights: initial",
            "see 12",
        ),
    }
    assert list_accepted(old, old) == ()
    added = list_accepted(EMPTY, accept(make(), INITIAL))
    assert {(str(each.kind), each.message) for each in added} == {
        ("new cell, green", "initial weights")
    }


def test_a_contract_is_accepted_with_the_last_cell_of_its_model() -> None:
    old, states = accept(make()), describe_states(make(seed=7), LOADED, EMPTY)
    outcomes = extract_outcomes(LOADED)
    partly = accept_some(old, outcomes, {CELLS[0]: "why"}, states)
    assert compare(partly, make(seed=7)) == [("contract changed", "seed: none", "seed: 7")]
    assert (
        compare(accept_some(old, outcomes, dict.fromkeys(CELLS, "why"), states), make(seed=7)) == []
    )
