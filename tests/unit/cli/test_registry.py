"""The list of commands: each description fits its line, and typos have a suggestion."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from exporter.cli.entry_point import BUILT_IN, exporter
from exporter.core.errors import ExitCode
from tests.unit.manifest.projects import ENTRY, make_project

ROOT = Path(__file__).parents[3]


def test_the_help_has_a_full_sentence_for_each_command_and_every_exit_code() -> None:
    shown = CliRunner().invoke(exporter, ["--help"], terminal_width=80).output
    names = exporter.list_commands(click.Context(exporter))
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert [name for name in names if not lines[name].endswith((".", "?"))] == []
    assert [name for name in names if lines[name].endswith("...")] == []
    assert [code for code in ExitCode if str(code.value) not in lines] == []


def test_the_page_has_each_command() -> None:
    page = (ROOT / "docs/commands.md").read_text("utf-8")
    assert {*re.findall(r"^\| `exporter ([a-z]+)", page, re.MULTILINE)} == {*BUILT_IN}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("exprot", "there is no command 'exprot'; did you mean 'export'?"),
        ("xyzzy", "there is no command 'xyzzy'"),
        ("ops", "lists each operator that the exporter of a red cell lacks"),
    ],
)
def test_an_unknown_command_has_a_suggestion(word: str, message: str) -> None:
    result = CliRunner().invoke(exporter, [word])
    assert result.exit_code == ExitCode.MANIFEST
    assert result.output.rstrip().endswith(message)


def complete(words: list[str], word: str) -> list[str]:
    completion = BashComplete(exporter, {}, "exporter", "_EXPORTER_COMPLETE")
    return [item.value for item in completion.get_completions(words, word)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    net = f'format = 1\n[models.net]\ntags = ["vision"]\n{ENTRY}'.replace("9..21", "17..18")
    make_project(tmp_path, {"manifests/net.toml": net})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "word", "values"),
    [
        (["export"], "n", ["net"]),
        (["export"], "net/", ["net/17/cpu", "net/18/cpu"]),
        (["explain"], "net/18", ["net/18/cpu"]),
        (["plan", "--tag"], "", ["vision"]),
        (["list", "--opset"], "1", ["17", "18"]),
        (["publish", "--device"], "c", ["cpu"]),
        (["export"], "x", []),
        ([], "exp", ["export", "explain"]),
    ],
)
def test_values_of_the_project(root: Path, words: list[str], word: str, values: list[str]) -> None:
    assert sorted(complete(words, word)) == sorted(values)


def test_another_root_and_an_invalid_project(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert complete(["export", "--root", str(other)], "n") == []
    assert complete(["export", "--root", str(root)], "n") == ["net"]


def test_each_command_can_be_completed() -> None:
    for name in exporter.list_commands(click.Context(exporter)):
        assert "--help" in complete([name], "--h"), name
