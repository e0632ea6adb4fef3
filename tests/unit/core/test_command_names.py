"""Commands in messages have the form of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cli.entry_point import run
from exporter.core.text import (
    DEFAULT_COMMAND,
    format_command,
    read_command,
    replace_commands,
)

NOX = "nox -s {} --"


def test_the_name_replaces_the_placeholder() -> None:
    assert format_command(DEFAULT_COMMAND, "export", "'net/*'") == "exporter export 'net/*'"
    assert format_command(NOX, "export", "'net/*'") == "nox -s export -- 'net/*'"
    assert format_command(NOX, "gate") == "nox -s gate"
    assert format_command("uv run exporter {}", "gate") == "uv run exporter gate"


def test_only_text_in_backticks_is_a_command() -> None:
    result = "run `exporter export net` first; an exporter export is no command"
    assert replace_commands(result, NOX) == (
        "run `nox -s export -- net` first; an exporter export is no command"
    )
    assert replace_commands(result, DEFAULT_COMMAND) == result


@pytest.mark.parametrize(
    "settings",
    [
        None,
        "",
        "[tool",
        "[tool.exporter]\ncommand = 3",
        "[tool.exporter]\ncommand = 'x'",
        "tool = 1",
    ],
)
def test_invalid_settings_give_the_default_command(tmp_path: Path, settings: str | None) -> None:
    if settings is not None:
        (tmp_path / "pyproject.toml").write_text(settings)
    assert read_command(tmp_path) == DEFAULT_COMMAND


@pytest.mark.parametrize(("settings", "typed"), [("", "exporter export"), (NOX, "nox -s export")])
def test_the_terminal_prints_the_commands_of_the_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, typed: str
) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/net.py").write_text("class Net: ...\n")
    (tmp_path / "manifests/net.toml").write_text(
        'format = 1\n[models.net]\nsource = "net.py:Net"\nopsets = 17\n'
        'inputs = [{ name = "x", shape = [4] }]\noutputs = [{ name = "y", shape = [4] }]\n'
    )
    text = f"[tool.exporter]\ncommand = '{settings}'\n" if settings else ""
    (tmp_path / "pyproject.toml").write_text(text)
    assert run(["report", "--root", str(tmp_path)]) == 5
    assert f"no results yet; run `{typed}` first" in capsys.readouterr().err
