"""Lines on the terminal: aligned, harmless, colored if possible."""

from __future__ import annotations

import pytest

from exporter.cli.output.terminal import (
    align_columns,
    choose_color,
    fit_columns,
    has_color,
    print_line,
    print_summary,
    print_table,
)
from exporter.core.errors import ExitCode, ExportSummary
from exporter.records.record import Status


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert align_columns([("a", "b"), ("long", ""), ("x", "y")]) == ["a     b", "long", "x     y"]
    assert align_columns([]) == []


WIDE = [("CELL", "ROUTE", "REASON"), ("indexed/9..17/cpu", "torchscript", "word " * 12)]


def test_a_wide_last_column_is_wrapped() -> None:
    assert fit_columns(WIDE, None) == align_columns(WIDE)
    lines = fit_columns(WIDE, 80)
    assert max(map(len, lines)) <= 80
    assert [line[:32].split() for line in lines] == [
        ["CELL", "ROUTE"],
        ["indexed/9..17/cpu", "torchscript"],
        [],
    ]
    assert lines[2] == f"{'':32}{'word ' * 3}".rstrip()


def test_a_row_that_is_too_wide_continues_on_the_next_line() -> None:
    assert fit_columns(WIDE, 40)[:4] == [
        "CELL",
        "    ROUTE  REASON",
        "indexed/9..17/cpu",
        "    torchscript  word word word word",
    ]


def test_the_width_is_that_of_the_terminal_or_of_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(WIDE)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 80
    monkeypatch.setenv("COLUMNS", "60")
    print_table(WIDE, indent="  ")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_long_lines_of_a_summary_are_wrapped_at_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_line(f"    promised at {'x' * 30} as before", wraps=True)
    lines = ["    promised at", f"        {'x' * 30}", "        as before"]
    assert capsys.readouterr().out.splitlines() == lines
    document = "a patch must stay as it is"
    print_line(document)
    monkeypatch.delenv("COLUMNS")
    print_line(document, wraps=True)
    assert capsys.readouterr().out == f"{document}\n" * 2


def test_the_last_lines_of_a_summary_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    counts = "1,204 cells: 1,190 pass, 4 fail, 3 error, 2 crash, 1 timeout, 1 killed, 3 xfail"
    print_summary(
        ExportSummary(code=ExitCode.OK, lines=((counts, None),), next_step="apply it " * 15), 9.5
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "    in 9.5 s"
    assert lines[2].startswith("next: apply it")
    assert max(map(len, lines)) <= 80


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
