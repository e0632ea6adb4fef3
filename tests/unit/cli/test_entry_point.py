"""Every error becomes a message and an exit code."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NoReturn

import click
import pytest

from exporter.cli import entry_point as entry
from exporter.cli.entry_point import NEXT_STEPS
from exporter.cli.entry_point import exporter as commands
from exporter.cli.output import terminal
from exporter.core.errors import RESULTS_NOTE, ExitCode, ExporterError, Location, Problem

ROOT = Path(__file__).parents[3]
INTERRUPT = KeyboardInterrupt()
INTERRUPT.add_note(RESULTS_NOTE)


def make_failing_command(error: BaseException) -> click.Command:
    def command() -> NoReturn:
        raise error

    return click.Command("fails", callback=command)


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Return a function that runs a failing command and returns the exit code."""

    def run(error: BaseException) -> int:
        monkeypatch.setattr(entry, "exporter", make_failing_command(error))
        return entry.run([])

    return run


def test_problems_are_one_per_line_without_a_traceback(
    fail_with: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [
        Problem(message="one\x1b[31m", location=Location(file="a.toml", line=3), key="models.x"),
        Problem(message="two"),
    ]
    assert fail_with(ExporterError(ExitCode.MANIFEST, problems)) == 2
    assert capsys.readouterr().err == "a.toml:3: models.x: one\ntwo\n"


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (INTERRUPT, 130, "interrupted; finished results are kept\n"),
        (OSError(errno.ENOSPC, "", "build/x"), 4, "build/x: No space left on device"),
        (PermissionError(errno.EACCES, ""), 4, "Permission denied"),
        (OSError(errno.ENOENT, ""), 70, "Traceback"),
        (ZeroDivisionError(), 70, "report the lines above"),
        (click.UsageError("no such thing"), 2, "no such thing"),
    ],
)
def test_every_error_has_its_code(
    fail_with: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    shown: str,
) -> None:
    assert fail_with(error) == code
    assert shown in capsys.readouterr().err


def test_a_deprecated_option_warns_and_leaves_the_document_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/stability.md promises the version and the replacement, in front of both forms."""
    options: list[click.Parameter] = [
        click.Option(["--old"], is_flag=True, deprecated="2.0 removes it; use --new"),
        click.Option(["--new"], is_flag=True),
    ]
    command = click.Command("ends", params=options, callback=lambda **_: terminal.print_line("{}"))
    monkeypatch.setattr(entry, "exporter", command)
    printed = {}
    for option in ("--old", "--new"):
        assert not entry.run([option])
        printed[option] = capsys.readouterr()
        assert printed[option].out == "{}\n"
    assert "2.0 removes it; use --new" in printed["--old"].err
    assert not printed["--new"].err


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["--version"], 0, "exporter"),
        (["--help"], 0, "baseline"),
        (["export", "--help"], 0, "--dry-run"),
        (["--jobs"], 2, "No such option"),
        (["export", "--jobs", "0"], 2, "--jobs"),
        (["export", "--opset", "x"], 2, "--opset"),
        (["list", "--root", "/nowhere/at/all"], 2, "--root"),
    ],
)
def test_the_command_line_reports_help_and_errors(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, shown: str
) -> None:
    assert entry.run(arguments) == code
    captured = capsys.readouterr()
    assert shown in captured.out + captured.err


def run_in_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell in which `$exporter` is the program."""
    environment = dict(os.environ, exporter=f"{sys.executable} -m exporter", PYTHONPATH=str(ROOT))
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("set -o pipefail; $exporter --help | true", 128 + signal.SIGPIPE),
        ("set -o pipefail; $exporter schema | true", 128 + signal.SIGPIPE),
        ("$exporter schema >&-", 0),
        ("$exporter schema <&- >&- 2>&-", 0),
        ("$exporter schema", 0),
        ("_EXPORTER_COMPLETE=bash_source $exporter", 0),
    ],
)
def test_a_closed_stream_is_neither_red_nor_a_bug(command: str, code: int, tmp_path: Path) -> None:
    ended = run_in_shell(command, tmp_path)
    assert ended.returncode == code, ended.stderr
    assert not ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_a_removed_current_folder_is_no_bug(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = run_in_shell("cd gone && rmdir ../gone && $exporter list", tmp_path)
    assert ended.returncode == 4
    assert ended.stderr.startswith("the current folder: does not exist any more")


def test_a_closed_pipe_to_another_process_is_a_bug_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("exporter.commands.inspection_command.list_cells.callback", write)
    assert entry.run(["list"]) == 70
    assert "Broken pipe" in capsys.readouterr().err


def test_a_checkout_that_is_not_installed_has_no_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert entry.run(["--version"]) == 0
    assert capsys.readouterr().out == "exporter, not installed\n"


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["merge"], 0, "next: compare with the accepted results: `exporter gate`\n"),
        (["merge"], 1, ""),
        (["export"], 0, ""),  # its summary has one
        (["schema"], 0, ""),
        ([], 0, ""),
    ],
)
def test_a_command_ends_with_the_next_one_on_a_terminal(
    arguments: list[str],
    code: int,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = click.Command("any", callback=lambda: code)
    monkeypatch.setattr(command, "main", lambda *_, **__: code)
    monkeypatch.setattr(entry, "exporter", command)
    monkeypatch.chdir(tmp_path)
    terminal._read_command_cached.cache_clear()  # of the relative root in another folder
    for is_terminal in (True, False):
        monkeypatch.setattr(entry, "is_terminal", lambda is_shown=is_terminal: is_shown)
        assert entry.run(arguments) == code
        assert capsys.readouterr().out == (shown if is_terminal else "")


def test_each_next_step_names_commands() -> None:
    for (name, _), step in NEXT_STEPS.items():
        (command,) = re.findall(r"`exporter (\w+)[^`]*`", step)
        assert {name, command} <= set(commands.list_commands(click.Context(commands)))
