"""Progress on a terminal and in a log."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from exporter.cli.output.line_progress import LineProgress
from exporter.cli.output.live_progress import LiveProgress
from exporter.cli.output.progress import observe_progress, print_late
from exporter.jobs import Announcement
from exporter.pipeline.decisions import Decisions
from exporter.planning.plan import make_plan
from exporter.records.record import CellId, Stage
from tests.unit.factory import make_manifest, make_record, make_spec

PLAN = make_plan(make_manifest(make_spec("a", opsets=(17, 18)), make_spec("b", opsets=(18,))))

ALL = Decisions(
    to_run=PLAN.to_run,
    reasons={planned.cell: "it has not been exported yet" for planned in PLAN.to_run},
)


def start(screen: LiveProgress) -> LiveProgress:
    screen.on_decisions(ALL)
    return screen


def render(screen: LiveProgress) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(screen.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def announce(*opsets: int) -> Announcement:
    cells = tuple(CellId(model="a", opset=opset, device="cpu") for opset in opsets)
    return Announcement(stage=Stage.CAPTURE, cells=cells, log="a/logs/model.log")


def test_the_screen_shows_the_cells_in_progress_and_the_rest() -> None:
    screen = start(LiveProgress())
    assert "0/3 cells, 0:00, 3 left" in render(screen)
    assert "starting PyTorch" in render(screen)
    screen.on_announcement(announce(17, 18))
    shown = render(screen)
    assert "starting PyTorch" not in shown
    assert "opset 17..18" in shown
    assert "capture" in shown


def test_a_finished_cell_leaves_the_screen_and_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = start(LiveProgress())
    screen.on_announcement(announce(17))
    screen.on_cell_done(make_record("a/17/cpu"))
    screen.on_cell_done(make_record("a/18/cpu", "fail"))
    # The first cells of a model contain the start of PyTorch.
    assert "2/3 cells, 1 red, 0:00, 1 left" in render(screen)
    screen.on_model_done("a")
    shown = render(screen)
    assert re.search(r"2/3 cells, 1 red, 0:00, about 0:00 left", shown)
    assert "capture" not in shown
    output = capsys.readouterr().out
    assert "a/18/cpu" not in output  # the summary has the red cells
    assert "[2/3] a: 1 pass, 1 fail" in output


def test_each_worker_of_a_model_has_its_line_until_its_cell_is_done() -> None:
    screen = start(LiveProgress())
    for part, opset in enumerate((17, 18)):
        cell = CellId(model="a", opset=opset, device="cpu")
        screen.on_announcement(Announcement(stage=Stage.PARITY, cells=(cell,), log="", part=part))
    assert "opset 17 " in render(screen)
    assert "opset 18 " in render(screen)
    screen.on_cell_done(make_record("a/17/cpu"))
    assert "opset 17 " not in render(screen)
    assert "opset 18 " in render(screen)
    screen.on_model_done("a")
    assert "opset" not in render(screen)


def test_an_announcement_without_cells_is_not_shown() -> None:
    screen = start(LiveProgress())
    screen.on_announcement(Announcement(stage=Stage.CAPTURE, cells=(), log=""))
    assert "capture" not in render(screen)


def test_without_a_terminal_there_are_only_lines() -> None:
    with observe_progress(explain=False) as observer:
        assert type(observer) is LineProgress


def test_a_long_export_without_a_terminal_names_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("exporter.cli.output.progress._FIRST", 0.0)
    printed, texts = threading.Event(), list[str]()

    def print_error(text: str) -> None:
        texts.append(text)
        printed.set()

    monkeypatch.setattr("exporter.cli.output.progress.print_error", print_error)
    with observe_progress(explain=False) as observer:
        observer.on_note("begins")
        assert isinstance(observer, LineProgress)
        assert observer.describe_late() == "", "nothing runs yet"
    lines = LineProgress()
    lines.on_decisions(ALL)
    assert lines.describe_late() == "0 of 3 cells; starting PyTorch"
    lines.on_announcement(announce(17, 18))
    assert lines.describe_late() == "0 of 3 cells; a 17..18: capture"
    with print_late(lines.describe_late):
        assert printed.wait(60)
    assert "0 of 3 cells; a 17..18: capture (0 s)" in texts
    lines.on_model_done("a")
    assert "a 17" not in lines.describe_late()


def test_on_a_terminal_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("exporter.cli.output.progress.is_terminal", lambda: True)
    with observe_progress(explain=False) as observer:
        assert isinstance(observer, LiveProgress)
        observer.on_note("\x1b[31m[b]off[/b]")
    assert "[b]off[/b]" in capsys.readouterr().out


def test_explain_prints_the_reason_of_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    LineProgress(explain=True).on_decisions(ALL)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "a/17..18/cpu runs: it has not been exported yet"
    LineProgress().on_decisions(ALL)
    assert capsys.readouterr().out == ""


def test_restored_cells_are_counted_and_reasons_fold_opsets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (last,) = (planned.cell for planned in PLAN.to_run if planned.cell.model == "b")
    screen = LiveProgress(explain=True)
    screen.on_decisions(replace(ALL, hits={last: "net.py changed"}))
    assert "1 restored" in render(screen)
    output = capsys.readouterr().out
    assert "a/17..18/cpu runs: it has not been exported yet\n" in output
    assert "b/18/cpu is restored from the store: net.py changed\n" in output
