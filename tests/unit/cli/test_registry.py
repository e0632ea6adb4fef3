"""The list of commands: what each is for fits its line, and a slip of the keys is understood."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from exporter.cli.registry import exporter
from exporter.core.errors import ExitCode


def test_the_help_shows_each_command_with_a_whole_sentence_and_every_exit_code() -> None:
    shown = CliRunner().invoke(exporter, ["--help"], terminal_width=80).output
    names = exporter.list_commands(click.Context(exporter))
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert [name for name in names if not lines[name].endswith((".", "?"))] == []
    assert [name for name in names if lines[name].endswith("...")] == []
    assert [code for code in ExitCode if str(code.value) not in lines] == []


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("exprot", "there is no command 'exprot'; did you mean 'export'?"),
        ("xyzzy", "there is no command 'xyzzy'"),
    ],
)
def test_a_command_that_does_not_exist_names_the_nearest(word: str, says: str) -> None:
    refused = CliRunner().invoke(exporter, [word])
    assert refused.exit_code == ExitCode.MANIFEST
    assert refused.output.rstrip().endswith(says)


def test_an_option_that_does_not_exist_is_no_command() -> None:
    refused = CliRunner().invoke(exporter, ["--jobs"])
    assert "No such option" in refused.output
