"""The list of commands: each description fits its line, and typos have a suggestion."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from exporter.cli.registry import exporter
from exporter.core.errors import ExitCode


def test_the_help_has_a_full_sentence_for_each_command_and_every_exit_code() -> None:
    shown = CliRunner().invoke(exporter, ["--help"], terminal_width=80).output
    names = exporter.list_commands(click.Context(exporter))
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert [name for name in names if not lines[name].endswith((".", "?"))] == []
    assert [name for name in names if lines[name].endswith("...")] == []
    assert [code for code in ExitCode if str(code.value) not in lines] == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("exprot", "there is no command 'exprot'; did you mean 'export'?"),
        ("xyzzy", "there is no command 'xyzzy'"),
    ],
)
def test_an_unknown_command_has_a_suggestion(word: str, message: str) -> None:
    result = CliRunner().invoke(exporter, [word])
    assert result.exit_code == ExitCode.MANIFEST
    assert result.output.rstrip().endswith(message)


def test_an_unknown_option_is_not_a_command() -> None:
    result = CliRunner().invoke(exporter, ["--jobs"])
    assert "No such option" in result.output
