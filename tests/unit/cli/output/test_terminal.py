"""Lines on the terminal: aligned, harmless, colored if possible."""

from __future__ import annotations

import pytest

from exporter.cli.output.terminal import align_columns, choose_color, has_color, print_line
from exporter.records.record import Status


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert align_columns([("a", "b"), ("long", ""), ("x", "y")]) == ["a     b", "long", "x     y"]
    assert align_columns([]) == []


def test_control_characters_of_text_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("\x1b[2Jalexnet\r")
    assert capsys.readouterr().out == "alexnet\n"


def test_without_a_terminal_there_is_no_color(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("red", color="red")
    assert capsys.readouterr().out == "red\n"


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_colors_need_a_terminal_and_no_setting_against_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_colored: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert has_color() is is_colored


@pytest.mark.parametrize("status", list(Status))
def test_only_proved_cells_are_green(status: Status) -> None:
    assert (choose_color(status) == "green") == (status in (Status.PASS, Status.XFAIL))
