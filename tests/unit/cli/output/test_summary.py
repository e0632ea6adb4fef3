from __future__ import annotations

import pytest

from exporter.build import Decisions
from exporter.cli.output.progress import LineProgress
from exporter.cli.output.summary import format_counts, format_grid, show_summary
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.records.record import Status
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(make_spec("a", opsets=(9, 18)), make_spec("longer", opsets=(18, 19)))
PLAN = make_plan(MANIFEST)
ALL = ("a/9/cpu", "a/18/cpu", "longer/18/cpu", "longer/19/cpu")


def test_the_grid_has_a_mark_where_a_cell_is_promised() -> None:
    known = make_run(make_record("a/18/cpu"), make_record("longer/18/cpu", "fail")).by_cell()
    assert format_grid(PLAN.selected, known) == [
        "cpu      9 18 19",
        "a       ⬜ ✅",
        "longer     ❌ ⬜",
    ]


def test_the_grid_has_letters_where_symbols_are_not_wanted() -> None:
    known = make_run(make_record("a/18/cpu"), make_record("longer/18/cpu", "fail")).by_cell()
    assert format_grid(PLAN.selected, known, "text") == [
        "cpu      9 18 19",
        "a        .  P",
        "longer      F  .",
    ]


def test_counts_stand_in_the_order_of_the_statuses() -> None:
    records = [None, make_record("a/9/cpu", "fail"), make_record("a/18/cpu")]
    assert format_counts(records) == "1 pass, 1 fail, 1 not run"


def test_all_green_is_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_summary(MANIFEST, PLAN, make_run(*(make_record(cell) for cell in ALL))) == 0
    assert "4 cells: 4 pass" in capsys.readouterr().out


@pytest.mark.parametrize("status", [s for s in Status if s.is_red])
def test_a_red_cell_is_code_1_and_is_named_with_its_log(
    capsys: pytest.CaptureFixture[str], status: Status
) -> None:
    red = make_record("a/9/cpu", status, message="went\x1b[0m\nwrong", log="a/logs/9.log")
    run = make_run(red, *(make_record(cell) for cell in ALL[1:]))
    assert show_summary(MANIFEST, PLAN, run) == 1
    shown = capsys.readouterr().out
    assert "went wrong" in shown
    assert "build/a/logs/9.log" in shown


def test_a_selected_cell_without_a_record_is_code_1() -> None:
    assert show_summary(MANIFEST, PLAN, make_run(make_record("a/9/cpu"))) == 1


def test_only_selected_cells_decide() -> None:
    plan = make_plan(MANIFEST, Selection(patterns=("a/18",)))
    run = make_run(make_record("a/18/cpu"), make_record("a/9/cpu", "fail"))
    assert show_summary(MANIFEST, plan, run) == 0


@pytest.mark.parametrize("status", [Status.SKIP, Status.UNAVAILABLE, Status.XFAIL])
def test_what_is_neither_green_nor_red_stops_nobody(status: Status) -> None:
    run = make_run(make_record("a/9/cpu", status), *(make_record(cell) for cell in ALL[1:]))
    assert show_summary(MANIFEST, PLAN, run) == 0


def test_plain_lines_name_red_cells_at_once_and_models_when_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = LineProgress()
    reasons = dict.fromkeys(ALL, "it has not been exported yet")
    lines.on_decisions(Decisions(to_run=PLAN.to_run, reasons=reasons))
    lines.on_cell_done(
        make_record("a/9/cpu", "error", message="no such operator", log="a/logs/9.log")
    )
    lines.on_cell_done(make_record("a/18/cpu"))
    lines.on_model_done("a")
    lines.on_note("something else")
    assert capsys.readouterr().out.splitlines() == [
        "a/9/cpu: error at convert: no such operator",
        "    log: a/logs/9.log in the build folder",
        "[2/4] a: 1 error, 1 pass",
        "something else",
    ]
