"""The summary of an export, and its exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.cli.output.line_progress import LineProgress
from exporter.cli.output.tables import (
    format_counts,
    format_grid,
    format_initial_weights,
    make_summary,
)
from exporter.cli.output.terminal import print_summary
from exporter.core.errors import ExportSummary
from exporter.pipeline.decisions import Decisions
from exporter.planning import Selection
from exporter.planning.plan import Plan, make_plan
from exporter.records.baseline import parse_cell
from exporter.records.record import (
    DIAGNOSIS_NOTE,
    INITIAL_WEIGHTS,
    UNMEASURED_NOTE,
    MissingOperator,
    Record,
    Stage,
    Status,
)
from exporter.report.rows.cells import list_initial_models
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(make_spec("a", opsets=(9, 18)), make_spec("longer", opsets=(18, 19)))
PLAN = make_plan(MANIFEST)
ALL = ("a/9/cpu", "a/18/cpu", "longer/18/cpu", "longer/19/cpu")


@pytest.mark.parametrize(
    ("style", "rows"),
    [
        ((), ["a       ⬜ ✅", "longer     ❌ ⬜"]),
        (("text",), ["a        .  P", "longer      F  ."]),
    ],
)
def test_the_grid_has_a_mark_for_each_declared_cell(
    style: tuple[str, ...], rows: list[str]
) -> None:
    records = make_run(make_record("a/18/cpu"), make_record("longer/18/cpu", "fail")).by_cell()
    assert format_grid(PLAN.selected, records, *style) == ["cpu      9 18 19", *rows]


def summarize(*records: Record, plan: Plan = PLAN) -> ExportSummary:
    """Return the summary of these records; all other cells pass."""
    cells = {str(record.cell): record for record in map(make_record, ALL)}
    cells |= {str(record.cell): record for record in records}
    return make_summary(MANIFEST, plan, make_run(*cells.values()))


def test_counts_have_the_order_of_the_statuses() -> None:
    records = [None, make_record("a/9/cpu", "fail"), make_record("a/18/cpu")]
    assert format_counts(records) == "1 pass, 1 fail, 1 not run"


def test_the_code_is_0_without_a_selected_red_cell() -> None:
    assert summarize().lines[-1] == ("4 cells: 4 pass", "green")
    empty = summarize(plan=Plan(cells=PLAN.cells, selected=()))  # a part without a model
    assert empty.lines[-1][0] == "0 cells"
    for status in (Status.PASS, Status.SKIP, Status.UNAVAILABLE, Status.XFAIL):
        assert summarize(make_record("a/9/cpu", status)).code == 0
    plan = make_plan(MANIFEST, Selection(patterns=("a/18",)))
    assert summarize(make_record("a/9/cpu", "fail"), plan=plan).code == 0


@pytest.mark.parametrize("status", [s for s in Status if s.is_red])
def test_a_red_cell_is_code_1_and_has_a_line_with_its_log(status: Status) -> None:
    red = make_record("a/9/cpu", status, message="went\x1b[0m\nwrong", log="a/logs/9.log")
    summary = summarize(red)
    assert summary.code == 1
    text = "\n".join(line for line, _ in summary.lines)
    assert "went wrong" in text
    assert "build/a/logs/9.log" in text


def test_an_equal_reason_of_several_sources_is_printed_once() -> None:
    values: dict[str, Any] = {"stage": Stage.SOURCE, "message": "No module named 'nets'"}
    records = [make_record(cell, "error", **values) for cell in ("a/9/cpu", "longer/18/cpu")]
    lines = [line for line, _ in make_summary(MANIFEST, PLAN, make_run(*records)).lines]
    assert sum("No module named" in line for line in lines) == 1
    assert "    also: longer/18/cpu" in lines
    other = make_record(
        "longer/18/cpu", "error", stage=Stage.SOURCE, message="No module named 'net'"
    )
    lines = [line for line, _ in make_summary(MANIFEST, PLAN, make_run(records[0], other)).lines]
    assert sum("No module named" in line for line in lines) == 2


def test_initial_weights_have_a_line() -> None:
    def find_line(*models: str) -> str:
        notes = {"notes": ("weights: initial values of seed 3",)}
        records = (
            make_record(cell, **(notes if cell.split("/")[0] in models else {})) for cell in ALL
        )
        skipped = make_record("longer/19/cpu", "skip")  # has no notes
        run = make_run(*(record for record in records if record.cell != skipped.cell), skipped)
        lines = [line for line, _ in make_summary(MANIFEST, PLAN, run).lines]
        return next((line for line in lines if "weights" in line), "")

    end = "weights: initial values of seed 3; `weights` in an entry names trained ones"
    assert find_line("a") == f"a: {end}"
    assert find_line("a", "longer") == f"a, longer: {end}"
    assert find_line() == ""


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("the tokens of `generate` with num_beams = 4: the proved loop has no beams", True),
        ("branches were not searched", False),
    ],
)
def test_settings_of_generate_that_are_not_proved_have_a_line(text: str, *, is_shown: bool) -> None:
    record = make_record("a/9/cpu", notes=(f"not proved: {text}",))
    lines = [line for line, _ in make_summary(MANIFEST, PLAN, make_run(record)).lines]
    assert (f"a: not proved: {text}" in lines) is is_shown


@pytest.mark.parametrize(("release", "count"), [("0.7.0", 1), ("0.7.1", 0)])
def test_a_release_with_a_silent_fault_has_a_line(release: str, count: int) -> None:
    run = make_run(make_record("a/9/cpu"))
    run = run.model_copy(update={"tools": {**run.tools, "onnxscript": release}})
    lines = [line for line, _ in make_summary(MANIFEST, PLAN, run).lines]
    text = "warning: onnxscript 0.7.0 writes wrong files of `nn.GRU` by dynamo without an error"
    assert lines.count(f"{text}; install 'onnxscript>=0.7.1'") == count


def test_models_with_some_initial_weights_have_lines_of_their_own() -> None:
    def record(model: str, text: str) -> Record:
        return make_record(f"{model}/18/cpu", notes=(f"{INITIAL_WEIGHTS}{text}",))

    records = [record("a", " of seed 0"), record("b", ": head.weight and 1 more")]
    end = "`weights` in an entry names trained ones"
    assert format_initial_weights([*records, record("c", " of seed 0")]) == [
        f"a, c: weights: initial values of seed 0; {end}",
        f"b: weights: initial values: head.weight and 1 more; {end}",
    ]
    assert list_initial_models(records) == ["a", "b"]


def test_unavailable_cells_have_a_line_for_each_reason() -> None:
    def list_reasons(*messages: str, grid: bool = True) -> list[str]:
        absent = [
            make_record(cell, "unavailable", message=message)
            for cell, message in zip(ALL, messages, strict=False)
        ]
        present = [make_record(cell) for cell in ALL[len(absent) :]]
        lines = make_summary(MANIFEST, PLAN, make_run(*absent, *present), grid=grid).lines
        return [line for line, _ in lines if " unavailable: " in line]

    assert list_reasons() == []
    assert list_reasons("opset 9 is too old", "opset 18 is too old", "no driver") == [
        "cpu: 2 cells unavailable: opset 9 is too old",
        "cpu: 1 cell unavailable: no driver",
    ]
    assert list_reasons("no driver", grid=False) == []


def test_a_selected_cell_without_a_record_is_code_1() -> None:
    assert make_summary(MANIFEST, PLAN, make_run(make_record("a/9/cpu"))).code == 1


def test_the_reason_of_a_failure_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record("a/9/cpu", "error", message="no such operator", log="a/logs/9.log")
    LineProgress().on_cell_done(record)
    print_summary(make_summary(MANIFEST, PLAN, make_run(record)))
    output = capsys.readouterr().out
    assert output.count("no such operator") == 1
    assert output.count("a/logs/9.log") == 1


def test_models_are_printed_when_they_are_done_and_red_cells_in_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = LineProgress()
    reasons = dict.fromkeys(map(parse_cell, ALL), "it has not been exported yet")
    lines.on_decisions(Decisions(to_run=PLAN.to_run, reasons=reasons))
    lines.on_cell_done(
        make_record("a/9/cpu", "error", message="no such operator", log="a/logs/9.log")
    )
    lines.on_cell_done(make_record("a/18/cpu"))
    lines.on_model_done("a")
    lines.on_note("something else")
    assert capsys.readouterr().out.splitlines() == [
        "[2/4] a: 1 error, 1 pass",
        "something else",
    ]


@pytest.mark.parametrize("has_missing", [True, False])
def test_advice_is_printed_once(*, has_missing: bool) -> None:
    missing = (MissingOperator(operator="x::y", count=2, sources=()),) if has_missing else ()
    red = make_record("a/9/cpu", Status.ERROR, missing=missing, advice=("set z",))
    lines = [line.strip() for line, _ in summarize(red).lines]
    assert [line for line in lines if "set z" in line or "x::y" in line] == (
        ["advice: set z", "missing: x::y x2"] if has_missing else ["advice: set z"]
    )


def test_each_obstacle_has_a_line() -> None:
    red = make_record("a/9/cpu", Status.ERROR, obstacles=("net.py:3: one", "net.py:7: two"))
    lines = [line.strip() for line, _ in summarize(red).lines]
    assert [line for line in lines if "obstacle" in line] == [
        "obstacle: net.py:3: one",
        "obstacle: net.py:7: two",
    ]


def test_the_next_step_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    summary = make_summary(MANIFEST, PLAN, make_run(make_record("a/9/cpu")))
    print_summary(replace(summary, next_step="compare"), 1.0)
    assert capsys.readouterr().out.splitlines()[-1] == "next: compare"
    print_summary(summary)
    assert "next:" not in capsys.readouterr().out


def test_runs_that_a_review_left_out_are_named() -> None:
    note = f"{UNMEASURED_NOTE}66 of 120 runs"
    red = make_record("a/9/cpu", Status.INCONCLUSIVE).model_copy(update={"notes": (note,)})
    assert (f"a: {note}", None) in summarize(red).lines
    assert not any(UNMEASURED_NOTE in line for line, _ in summarize().lines)


def test_a_diagnosis_that_ended_early_is_named_on_request() -> None:
    note = f"{DIAGNOSIS_NOTE}was stopped after 30 s"
    red = make_record("a/9/cpu", Status.FAIL).model_copy(update={"notes": (note,)})
    run = make_run(red)
    shown = [
        any(note in line for line, _ in make_summary(MANIFEST, PLAN, run, verbose=verbose).lines)
        for verbose in (False, True)
    ]
    assert shown == [False, True]
