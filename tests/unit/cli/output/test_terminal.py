from __future__ import annotations

import pytest

from exporter.cli.output.terminal import align_columns, choose_color, has_color, print_line
from exporter.records.record import Status


def test_columns_are_as_wide_as_their_widest_entry_and_lines_end_where_text_does() -> None:
    assert align_columns([("a", "b"), ("long", ""), ("x", "y")]) == ["a     b", "long", "x     y"]
    assert align_columns([]) == []


def test_what_others_wrote_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("\x1b[2Jalexnet\r")
    assert capsys.readouterr().out == "alexnet\n"


def test_without_a_terminal_there_is_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("red", color="red")
    assert capsys.readouterr().out == "red\n"


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_colour_needs_a_terminal_that_wants_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert has_color() is coloured


@pytest.mark.parametrize("status", list(Status))
def test_green_is_only_what_was_proved(status: Status) -> None:
    assert (choose_color(status) == "green") == (status in (Status.PASS, Status.XFAIL))
