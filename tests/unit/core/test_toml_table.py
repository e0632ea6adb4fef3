"""The settings of a project are found in `pyproject.toml`, and problems are reported as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.core.toml_table import find_settings, read_setting, read_toml_table


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, (None, ())),
        ({"tool": {}}, (None, ())),
        ({"tool": 1}, (None, ("tool",))),
        ({"tool": {"exporter": []}}, (None, ("tool", "exporter"))),
        ({"tool": {"exporter": {"build": "out"}}}, ({"build": "out"}, ())),
    ],
)
def test_the_settings_are_found_or_the_wrong_key_is_returned(
    document: dict[str, Any], expected: object
) -> None:
    assert find_settings(document) == expected


@pytest.mark.parametrize("text", [None, "[tool", "tool = 1", "[tool.exporter]\n"])
def test_a_project_without_valid_settings_has_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert read_setting(tmp_path, "build", "build") == "build"


def test_a_setting_of_another_type_is_the_default(tmp_path: Path) -> None:
    text = '[tool.exporter]\nbuild = 3\nsandbox = "landlock"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert read_setting(tmp_path, "build", "build") == "build"
    assert read_setting(tmp_path, "sandbox", "none") == "landlock"
    assert read_setting(tmp_path, "engine", {}) == {}


def test_a_problem_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text("a = 1\nb = \n")
    content = read_toml_table(path)
    assert (content.table, content.line) == ({}, 2)
    assert content.problem.startswith("is not valid TOML at column ")
