"""The rows of the gate's verdict: cases of findings, and one complete comment."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.api.revision_comparison import ProjectState, compare_with_revision
from exporter.cli.output.tables import show_findings
from exporter.gate.baseline_comparison import (
    compare_results,
    list_accepted,
)
from exporter.gate.finding import Cause, GateFinding, read_change
from exporter.manifest import Action, FindingKind, Gate, GatePolicy, Manifest, ModelSpec, Tolerance
from exporter.manifest.resolved.policy import FINDINGS
from exporter.records.baseline import Baseline, make_baseline, parse_cell
from exporter.records.record import (
    INITIAL_WEIGHTS,
    PROVED,
    CheckResult,
    Record,
    Source,
    Stage,
    Status,
)
from exporter.report.pages.markdown import render_gate
from exporter.report.rows.gate_rows import (
    FindingRow,
    GateFacts,
    GateRows,
    build_finding_rows,
    build_gate_rows,
)
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

IN = "2a9548ebe314 of 2026-11-21"
REVISION = "main (2a9548ebe314) of 2026-11-21"
URL = "https://github.com/acme/models/blob/1a2b3c"
DIFF = "@@ -12 +12 @@ class Net:\n-        return x\n+        return x[:3]\n"


def make_cell(cell: str, error: float = 1e-6, **fields: Any) -> Record:
    """Return a green record with figures; `bytes`, `nodes` and others are those of its file."""
    id = parse_cell(cell)
    metrics = {"max_abs": error, "of_limit": error / 1e-3}
    check = CheckResult(check="parity", status=Status.PASS, metrics=metrics)
    notes = fields.pop("notes", ())
    artifact = make_artifact(id.model, id.opset, **{"ir_version": 8, **fields})
    return make_record(cell, checks=(check,), artifact=artifact, notes=notes)


def accept(*records: Record, tools: dict[str, str] | None = None) -> Baseline:
    baseline = make_baseline(make_run(*records, tools=tools))
    operators = {each.cell.opset: each.artifact.operators for each in records if each.artifact}
    states = {
        model: each.model_copy(
            update={"operators": {str(opset): counts for opset, counts in operators.items()}}
        )
        for model, each in baseline.models.items()
    }
    return Baseline(models=states)


NET = make_spec("net", line=7, owner="@acme/vision")
OTHER = make_spec("other", line=20)
BOTH = make_manifest(NET, OTHER)
GREEN = [make_cell(f"{model}/{opset}/cpu") for model in ("net", "other") for opset in (17, 18)]
ACCEPTED = accept(*GREEN)
EDITED = Cause(sources=(read_change("models/net.py", DIFF),))


def gate(
    *records: Record,
    manifest: Manifest = BOTH,
    base: Manifest = BOTH,
    accepted: Baseline = ACCEPTED,
    branch: Baseline | None = None,
    **context: Any,
) -> GateRows:
    """Return the rows of a branch with these records; the other cells are green as before."""
    changed = {record.cell for record in records}
    promised = frozenset(
        parse_cell(f"{spec.id}/{opset}/{device}")
        for spec in manifest.models
        for opset in spec.opsets
        for device in spec.devices
    )
    kept = [each for each in GREEN if each.cell not in changed and each.cell in promised]
    run = make_run(*records, *kept)
    after = accepted if branch is None else branch
    findings = compare_with_revision(
        ProjectState(manifest=base, baseline=accepted),
        ProjectState(manifest=manifest, baseline=after),
        run,
        promised,
    )
    causes = dict.fromkeys(context.pop("edited", ()), EDITED)
    facts = GateFacts(
        manifest=manifest,
        promised=promised,
        records=run.by_cell(),
        baseline=accepted,
        accepted=accepted.by_cell(),
        gate=base.project.gate,
        causes=causes,
        **{"tools": run.tools, "revision": REVISION, "accepted_in": IN, **context},
    )
    findings = tuple(replace(each, cause=causes.get(each.cell)) for each in findings)
    return build_gate_rows(findings, facts, list_accepted(accepted, after))


def relax(**actions: Action) -> Manifest:
    """Return both models with the actions of some findings."""
    kinds = {FINDINGS[key]: action for key, action in actions.items()}
    gate = Gate(policy=GatePolicy(actions=kinds))
    settings = BOTH.project.model_copy(update={"gate": gate})
    return BOTH.model_copy(update={"project": settings})


def loosen(atol: float) -> ModelSpec:
    return make_spec("net", line=7, tolerance=Tolerance(atol=atol, rtol=0.0))


NEW = make_spec("new", line=30)
NEW_CELLS = [make_cell(f"new/{n}/cpu", notes=(f"{INITIAL_WEIGHTS} of seed 0",)) for n in (17, 18)]
WITH_NEW = make_manifest(NET, OTHER, NEW)
GROWN = [make_cell("net/17/cpu", bytes=50_000), make_cell("net/18/cpu", bytes=90_000)]
BROKEN = make_record("net/18/cpu", "fail", check="axes", message="only batch 3")


def bake(device: str, text: str, *, parity: Status = Status.PASS) -> Record:
    """Return a cell whose file is wrong at each size except that of the example."""
    message = f"the file has a number of the example; batch=7: the runtime fails: {text}"
    only = {"samples": 9, "only": "batch=3"}
    checks = (
        CheckResult(check="parity", status=parity),
        CheckResult(check="axes", status=Status.FAIL, message=message, metrics=only),
    )
    check = "axes" if parity is Status.PASS else "parity"  # the first that fails
    return make_record(f"net/17/{device}", "fail", check=check, message=message, checks=checks)


NEWER = make_manifest(make_spec("net", line=7, opsets=(18,)), OTHER)
LOOSE = make_manifest(loosen(1e-2), OTHER)
STRICT = make_manifest(loosen(1e-3), OTHER)
DEVICES = ("cpu", "reference")
COUNTS = "4 cells of 2 models: "
WITH_TWO_NEW = "6 cells of 3 models: 4 as before, 2 new"

#: The records and the other state of a branch, the level and the first line.
VERDICTS: list[tuple[list[Record], dict[str, Any], str, str]] = [
    ([], {}, "passes", f"May merge · {COUNTS}4 as before"),
    (
        [BROKEN],
        {},
        "blocks",
        f"Blocks the merge: 1 of 1 changed model (newly red) · {COUNTS}3 as before, 1 changed",
    ),
    (
        [bake("cpu", "Reshape: {7,48}")],
        {},
        "blocks",
        (
            "Blocks the merge: 1 of 1 changed model (newly red: only batch=3 works) · "
            f"{COUNTS}3 as before, 1 changed"
        ),
    ),
    (
        NEW_CELLS,
        {"manifest": WITH_NEW},
        "pending",
        (
            "Not accepted yet, which blocks the merge: 1 of 1 changed model (new cell, green) · "
            f"{WITH_TWO_NEW}"
        ),
    ),
    (
        NEW_CELLS,
        {"manifest": WITH_NEW, "branch": accept(*GREEN, *NEW_CELLS)},
        "passes",
        f"May merge: 1 changed model · {WITH_TWO_NEW}",
    ),
    (
        GROWN,
        {"edited": [each.cell for each in GROWN]},
        "pending",
        (
            "May merge, but not accepted yet: 1 of 1 changed model (file grown) · "
            f"{COUNTS}2 as before, 2 changed"
        ),
    ),
    # The revision has the warning already: no edit of the branch explains it.
    (GROWN, {}, "passes", f"May merge · {COUNTS}4 as before"),
    (
        [],
        {"manifest": NEWER},
        "blocks",
        (
            "Blocks the merge: 1 of 1 changed model (promise removed) · "
            "3 cells of 2 models: 3 as before, 1 removed"
        ),
    ),
    # A refactoring: the file of the model changed, and no cell.
    (
        [],
        {"edited": [GREEN[0].cell]},
        "passes",
        f"May merge: 1 changed model · {COUNTS}4 as before",
    ),
]


@pytest.mark.parametrize(("records", "state", "level", "verdict"), VERDICTS)
def test_the_first_line_is_the_verdict(
    records: list[Record], state: dict[str, Any], level: str, verdict: str
) -> None:
    rows = gate(*records, **state)
    assert (rows.level, rows.verdict) == (level, verdict)
    assert rows.is_passed is ("locks the merge" not in verdict)
    symbol = {"blocks": "❌", "pending": "🟡", "passes": "✅"}[level]
    page = render_gate(rows, BOTH.project)
    assert page.startswith(f"### {symbol} {verdict}\n")
    assert bool(re.search(r"\*\*Next\*\*: (fix|restore)", page)) is (level == "blocks")


def find_row(rows: GateRows, kind: str) -> FindingRow:
    (row,) = [each for each in (*rows.findings, *rows.inherited) if each.kind == kind]
    return row


def test_a_row_has_the_figure_of_the_cell_that_grew_most() -> None:
    for rows in (gate(*GROWN), gate(*GROWN, edited=[each.cell for each in GROWN])):
        row = find_row(rows, "file grown")
        assert row.change == "1,234 bytes -> 90,000 bytes (x73), worst of 2"
        assert row.subject == "net/17..18/cpu"
    assert rows.models[0].figures["size"] == "1.23 kB → 90.0 kB, x73"


def test_figures_below_the_thresholds_are_shown() -> None:
    operators = {"Conv": 1, "Relu": 2}
    worse = make_cell("net/18/cpu", 2e-5, nodes=3, operators=operators, bytes=1300)
    (model,) = gate(worse, edited=[worse.cell]).models
    assert model.change == "nodes grown; the model changed: models/net.py:12"
    assert model.figures == {
        "size": "1.23 kB → 1.30 kB, +5%",
        "error": "1e-06 → 2e-05, x20 (2% of the limit)",
        "nodes": "2 → 3, +50% (+1 Relu)",
        "runtime": "1.12",
    }


def test_a_new_model_has_its_facts() -> None:
    rows = gate(*NEW_CELLS, manifest=WITH_NEW)
    (model,) = rows.models
    assert (model.state, model.change) == ("new", "opsets 17..18; initial weights")
    error = "1e-06 (0.1% of the limit)"
    assert model.figures == {"size": "1.23 kB", "error": error, "nodes": "2", "runtime": "1.12"}
    assert rows.accept_command == "exporter baseline update 'new/*' --reason \"REASON\""


def test_other_packages_are_shown_with_the_proof() -> None:
    fingerprint = {"tool.torch": "2.13.0"}
    cells = [each.model_copy(update={"fingerprint": fingerprint}) for each in GREEN[:3]]
    rows = gate(
        *cells, accepted=accept(*GREEN, tools={"torch": "2.12.0"}), tools={"torch": "2.13.0"}
    )
    assert rows.level == "passes"
    text = "torch 2.12.0 to 2.13.0: 3 of 4 cells proved anew, largest change of an error x1"
    assert rows.packages == text
    assert text in render_gate(rows, BOTH.project)
    assert gate().packages == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [(1e-6, "still holds: the largest error 1e-06 is about 0.10% of it"),
     (2e-3, "does not hold: the largest error 0.002 is about 200.00% of it")],
)  # fmt: skip
def test_a_wider_tolerance_shows_the_use_of_the_old_one(error: float, text: str) -> None:
    cells = [make_cell(f"net/{opset}/cpu", error) for opset in (17, 18)]
    row = find_row(gate(*cells, base=STRICT, manifest=LOOSE), "contract relaxed")
    assert row.message == f"promises less than the accepted state; the old limit {text}"


def test_a_removed_promise_costs_releases_and_has_no_command() -> None:
    cells = [make_cell("net/17/cpu"), make_cell("net/18/cpu", ir_version=10)]
    rows = gate(cells[1], accepted=accept(*cells, *GREEN[2:]), manifest=NEWER)
    (row,) = rows.findings
    assert (row.kind, row.change) == ("promise removed", "pass -> no result")
    assert "the files load in ONNX Runtime from 1.12 → 1.18; `consumers`" in row.message
    assert row.commands == ()


BLOCKED = "the policy of main lets no branch accept a loss"
APPROVE = "; commit it, and let @ann approve the commit; then run this check again"
COMMAND = "or accept it: `exporter baseline update 'net/18/cpu' --reason \"REASON\"`"
DECISIONS: list[tuple[Record, dict[str, Any], str]] = [
    (BROKEN, dict.fromkeys(("base", "manifest"), relax(accepted_here="block")), BLOCKED),
    (BROKEN, {"reviewers": {"net": "let @ann approve the commit"}}, COMMAND + APPROVE),
    (BROKEN, {"base": relax(accepted_here="warn")}, COMMAND),
    (BROKEN, {"revision": ""}, COMMAND),
    # Nothing is worse, so the command for all such cells is in `accept_command`.
    (make_cell("net/18/cpu", 5e-6), {}, ""),
]


@pytest.mark.parametrize(("record", "state", "decision"), DECISIONS)
def test_a_loss_has_a_next_step(record: Record, state: dict[str, Any], decision: str) -> None:
    decisions = [row.decision for row in gate(record, **state).findings]
    assert len(decisions) == bool(decision)
    assert all(decision in each for each in decisions)


INVALID = NET.model_copy(update={"problems": ("manifests/vision.toml:8: opsets: wrong",)})


@pytest.mark.parametrize(
    ("absent", "problems", "step", "command"),
    [
        ((), 1, "correct the entry: `exporter check` lists its problems", "exporter check"),
        (
            ("net",),
            1,
            "fetch checkpoints/a.pt first: see `exporter guide weights`",
            "exporter export 'net/18/cpu'",
        ),
        (("net",), 2, "correct the entry: `exporter check` lists its problems", "exporter check"),
    ],
)
def test_the_next_step_of_an_invalid_entry_accepts_nothing(
    absent: tuple[str, ...], problems: int, step: str, command: str
) -> None:
    spec = INVALID.model_copy(update={"problems": INVALID.problems * problems})
    missing = {"checkpoints/a.pt": absent} if absent else {}
    manifest = make_manifest(spec, OTHER).model_copy(update={"missing_files": missing})
    rows = gate(
        make_record("net/18/cpu", "error", message=INVALID.problems[0], stage=Stage.SOURCE),
        manifest=manifest,
    )
    assert rows.next.startswith(step)
    assert [row.commands for row in rows.findings] == [(command,)]


def test_the_next_step_of_a_cell_without_a_result_is_its_export() -> None:
    manifest = make_manifest(NET.model_copy(update={"opsets": (17, 18, 19)}), OTHER)
    rows = gate(BROKEN, manifest=manifest)
    assert {row.kind for row in rows.findings} == {"missing", "newly red"}
    assert rows.next == "prove the cells without a result: `exporter export`"


FORESEE = "or foresee it, with a reason: `expect = [{"


def test_an_expectation_is_offered_once_and_only_if_the_policy_accepts_it() -> None:
    offered = render_gate(gate(BROKEN), BOTH.project)
    assert offered.count(FORESEE) == offered.count("**Next**") == 1
    refused = gate(BROKEN, base=relax(accepted_here="block"))
    assert refused.findings[0].expectations == ()
    assert "baseline update" not in render_gate(refused, BOTH.project)


def test_an_expectation_is_shown_as_a_person_copies_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = "output 'y' is declared [batch, 3]"
    rows = gate(make_record("net/18/cpu", "fail", check="axes", message=message))
    show_findings(gate=rows)
    for text in (render_gate(rows, BOTH.project), capsys.readouterr().out):
        assert "`expect = [{" in text
        assert "match = \"output 'y' is declared [batch,\"" in text


def test_another_opset_is_no_fix_if_the_policy_lets_no_branch_drop_one() -> None:
    fixes = (f"opset 17 (dynamo): {PROVED}", f"`dynamic = false`: {PROVED}")
    message = f"only batch 3; {'; '.join(fixes)}"
    record = make_record("net/18/cpu", "fail", check="axes", message=message, advice=fixes)
    assert gate(record).findings[0].fixes == fixes
    refused = gate(record, base=relax(accepted_here="block")).findings[0]
    assert refused.fixes == fixes[1:]
    assert "opset 17" not in refused.message


GONE = make_manifest(OTHER)
ACCEPT_NET = "`exporter baseline update 'net/*' --reason \"REASON\"`; commit it"


def test_a_removed_model_has_a_next_step_and_no_empty_line() -> None:
    rows = gate(manifest=GONE)
    assert rows.next.startswith(f"restore the promise, or accept it: {ACCEPT_NET}")
    page = render_gate(rows, GONE.project)
    assert "promise removed" in page
    assert not re.search(r"^\s*-\s*$", page, re.MULTILINE)


def test_a_removed_model_with_the_source_of_a_new_one_may_be_renamed() -> None:
    contract = {"contract": {"source": NET.source}}
    models = {name: each.model_copy(update=contract) for name, each in ACCEPTED.models.items()}
    accepted = Baseline(models=models)
    rows = gate(*NEW_CELLS, manifest=make_manifest(NEW, OTHER), accepted=accepted)
    assert rows.next.startswith('write `was = "net"` in the entry of new if it is that model, or')
    assert "was =" not in gate(*NEW_CELLS, manifest=WITH_NEW, accepted=accepted).next
    changed = make_manifest(NEW.model_copy(update={"source": "a.py:B"}), OTHER)
    assert "was =" not in gate(*NEW_CELLS, manifest=changed, accepted=accepted).next


def test_cells_that_the_branch_deleted_from_the_baseline_are_restored_first() -> None:
    """Without them, `baseline update` does not know the cells."""
    rows = gate(manifest=GONE, forgotten={"net": "reports/baseline/net.json"})
    restore = "`git checkout main -- reports/baseline/net.json`, then"
    assert rows.next.startswith(f"restore the promise, or accept it: {restore} {ACCEPT_NET}")


def test_the_next_step_for_a_measurement_is_to_measure() -> None:
    measure = "run `exporter publish`, then `exporter merge FILE`"
    kind = FindingKind.EVIDENCE
    cell = parse_cell("net/18/cpu")
    finding = GateFinding(kind=kind, cell=cell, before="pass", after="none", message=measure)
    facts = GateFacts(manifest=BOTH, promised=frozenset({cell}), revision=REVISION)
    assert build_gate_rows([finding], facts).next == measure


def test_a_model_of_which_the_branch_accepts_a_new_cell_has_a_change() -> None:
    cell = make_cell("net/19/cpu")
    manifest = make_manifest(make_spec("net", line=7, opsets=(17, 18, 19)), OTHER)
    rows = gate(cell, manifest=manifest, branch=accept(*GREEN, cell))
    assert [(row.model, row.change) for row in rows.models] == [("net", "new cell, green")]


def test_an_accepted_loss_is_shown_once_with_its_reason() -> None:
    red = make_baseline(make_run(GREEN[0], BROKEN, *GREEN[2:])).models["net"]
    cells = (red.cells[0], red.cells[1].model_copy(update={"reason": "see #4"}))
    branch = Baseline(models={**ACCEPTED.models, "net": red.model_copy(update={"cells": cells})})
    rows = gate(BROKEN, branch=branch)
    assert [row.message for row in rows.findings] == ["accepted here: see #4 (only batch 3)"]
    assert rows.accepted == ()
    assert rows.next.startswith("the loss has a reason: let an owner approve the commit; then")
    allowed = gate(BROKEN, branch=branch, base=relax(accepted_here="warn"))
    assert (allowed.level, allowed.accept_command) == ("passes", "")


def test_each_difference_is_shown_once() -> None:
    broken = [BROKEN, make_record("net/17/cpu", "error", message="no batch")]
    rows = gate(*broken, edited=[each.cell for each in broken])
    assert [bool(row.diff) for row in rows.findings] == [True, False]
    assert render_gate(rows, BOTH.project).count("return x[:3]") == 1


def test_places_are_links_to_the_commit() -> None:
    rows = gate(BROKEN, edited=[BROKEN.cell])
    place = "`models/net.py:12`"
    assert f"[{place}]({URL}/models/net.py#L12)" in render_gate(rows, BOTH.project, URL)
    assert f"edited at {place}" in render_gate(rows, BOTH.project)


def test_findings_of_many_models_are_one_row() -> None:
    records = [
        make_record(f"{model}/9/cpu", "error", message=f"{model} lacks Foo") for model in "ab"
    ]
    records += [make_record(f"{model}/10/cpu") for model in "abcde"]
    run = make_run(*records)
    red, green = build_finding_rows(compare_results(Baseline(), run, run.by_cell()))
    assert (red.subject, red.models) == ("a/9/cpu, b/9/cpu", ("a", "b"))
    assert len(green.cells) == 5


def test_a_baked_size_is_one_finding_of_all_devices() -> None:
    devices = [make_record(f"net/{opset}/{name}") for opset in (17, 18) for name in DEVICES]
    accepted = make_baseline(make_run(*devices))
    red = [bake("cpu", "Reshape: {7,48}"), bake("reference", "cannot reshape")]
    both = make_manifest(make_spec("net", line=7, devices=DEVICES))
    rows = gate(*red, *devices[2:], accepted=accepted, base=both, manifest=both)
    assert [(row.title, row.subject) for row in rows.findings if row.is_blocking] == [
        ("newly red: only batch=3 works", "net/17/cpu,reference")
    ]
    # The higher lowest opset follows from the red cell, and accepting it repairs nothing.
    assert "lowest opset raised" not in {row.kind for row in rows.findings}
    assert rows.accept_command == ""
    wrong = gate(bake("cpu", "Reshape: {7,48}", parity=Status.FAIL), base=both, manifest=both)
    assert wrong.findings[0].title == "newly red"
    policy = relax(newly_red="warn", lowest_raised="block")
    assert gate(red[0], base=policy).level == "blocks"


def test_other_weights_of_an_entry_are_retrained() -> None:
    trained, other = (make_spec("net", line=7, weights_sha256=2 * text) for text in ("ab", "cd"))
    rows = gate(base=make_manifest(trained, OTHER), manifest=make_manifest(other, OTHER))
    assert {row.title for row in rows.findings} == {"retrained"}
    assert "changed model (retrained)" in rows.verdict
    rows = gate(manifest=make_manifest(make_spec("net", line=7, seed=3), OTHER))
    assert {row.title for row in rows.findings} == {"model redefined"}


@pytest.mark.parametrize(
    ("action", "title", "level"), [("warn", "", "passes"), ("block", "retrained", "blocks")]
)
def test_another_model_that_the_branch_accepts_is_listed_once(
    action: Action, title: str, level: str
) -> None:
    change = {"before": "weights file net.pt: 1", "after": "weights file net.pt: 2"}
    one = GateFinding(kind=FindingKind.REDEFINED, cell=parse_cell("net/17/cpu"), **change)
    finding = replace(one, action=action)
    facts = GateFacts(manifest=BOTH, accepted=ACCEPTED.by_cell(), baseline=ACCEPTED)
    assert build_gate_rows([finding], facts).findings[0].title == "retrained"
    rows = build_gate_rows([finding], facts, [replace(one, action="ignore")])
    assert "".join(row.title for row in rows.findings) == title
    assert (rows.level, [row.title for row in rows.accepted]) == (level, ["retrained"])
    assert "not accepted" not in rows.verdict


ONE = make_baseline(make_run(make_record("net/17/cpu"), make_record("net/18/cpu", "error")))
FIXED = make_record("net/18/cpu", "error")
SOURCES = (Source(file="models/net.py", state=""), Source(file="models/*.py", state=""))
DETAIL = """Traceback
  File "utils.py", line 3, in export
  File "net.py", line 12, in forward
  File "module.py", line 4, in _call_impl
ValueError: no
"""
FOLDERS = (Source(file="a/net.py", state=""), Source(file="linear.py", state=""))
FRAMES = 'File "a/net.py", line 4, in forward\nFile "torch/nn/linear.py", line 9, in forward\n'


def explain(*records: Record, accepted: Baseline = ONE, accepted_in: str = IN) -> FindingRow:
    """Return the only row."""
    run = make_run(*records)
    context = GateFacts(manifest=BOTH, records=run.by_cell(), accepted_in=accepted_in)
    (row,) = build_finding_rows(compare_results(accepted, run, run.by_cell()), context)
    return row


def test_a_newly_red_cell_has_all_facts() -> None:
    row = explain(make_record("net/17/cpu", "error", detail=DETAIL, sources=SOURCES), FIXED)
    assert row.locations == ("manifests/vision.toml:7",)
    assert row.owners == ("@acme/vision",)
    assert row.lines == ("models/net.py:12",)
    assert row.acceptance == f"last green in {IN}"
    assert row.commands == ("exporter repro net/17/cpu",)


def test_the_lines_of_the_model_are_those_of_a_source() -> None:
    twice = (Source(file="a/net.py", state=""), Source(file="b/net.py", state=""))
    red = make_record("net/17/cpu", "error", detail=DETAIL, sources=twice)
    assert explain(red, FIXED).lines == ()
    red = make_record("net/17/cpu", "error", detail=FRAMES, sources=FOLDERS)
    assert explain(red, FIXED).lines == ("a/net.py:4",)


def test_the_acceptance_of_a_failure_is_known() -> None:
    worse = explain(make_record("net/17/cpu"), make_record("net/18/cpu", "crash"))
    assert worse.acceptance == f"last accepted in {IN}"
    red = make_record("net/17/cpu", "fail")
    assert explain(red, FIXED, accepted_in="").acceptance == ""
    assert explain(red, accepted=Baseline()).acceptance == ""


def test_the_comment_of_a_branch_is_complete() -> None:
    """A broken opset, a new model, and a warning of the revision."""
    other = [make_cell(f"other/{opset}/cpu", bytes=20_000) for opset in (17, 18)]
    rows = gate(
        BROKEN, *NEW_CELLS, *other, manifest=WITH_NEW, edited=[BROKEN.cell],
        stale_pages="reports/COMPATIBILITY.md of the last commit has other results",
    )  # fmt: skip
    golden = Path(__file__).with_name("comment.md").read_text(encoding="utf-8")
    assert render_gate(rows, BOTH.project, URL) == golden


def test_a_model_with_a_finding_has_no_row_in_a_table() -> None:
    """A loss and a change that the branch can accept are in one list of the model."""
    rows = gate(
        BROKEN, *NEW_CELLS, manifest=make_manifest(make_spec("net", line=7, seed=3), OTHER),
        edited=[BROKEN.cell],
    )  # fmt: skip
    assert {row.title for row in rows.findings} >= {"newly red", "model redefined"}
    page = render_gate(rows, BOTH.project, URL)
    assert re.search(r"^- model redefined: .*`net/", page, re.MULTILINE)
    assert not re.search(r"^\| `net[/`]", page, re.MULTILINE)
