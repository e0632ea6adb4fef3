"""The settings of a project are found in `pyproject.toml`, and problems are reported as values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.toml_errors import draw_excerpt, explain_syntax_error
from exporter.core.toml_table import (
    find_root,
    find_settings,
    read_setting,
    read_toml_table,
)


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


TEXTS = {
    "[m.x]\na = 1\n\n[m.x]\n": "[m.x] is defined twice, first at line 1; merge them or rename one",
    "[m]\na = 1\n[m.a]\n": "a key that has a value already becomes a table here",
    "a.b = 1\n[a]\n": "[a] is defined twice: here and by a key",
    "a = 1\nb = 2\na = 3\n": "the key 'a' is defined twice, first at line 1; remove one of them",
    "[x]\na = 1\n[y]\na = 2\na = 3\n": "the key 'a' is defined twice, first at line 4",
    "a = { b = 1, b = 2 }\n": "the key 'b' is defined twice in this table",
    "a = \n": "the key has no value; write one after '='",
    "a = cpu\n": "'cpu' is no value; a text needs quotes",
    "a = [cpu, 'gpu']\n": "'cpu' is no value; a text needs quotes",
    "a = 9..21\n": "a text or a range needs quotes",
    "a b = 1\n": "expected '=' after the key",
    "= 1\n": "expected a key, a header like [models.net] or a comment",
    "a = [1 2]\n": "the list needs ',' between its items and ']' at its end",
    "a = [1,\n": "the list needs ',' between its items and ']' at its end",
    "a = { b = 1 c = 2 }\n": "the table needs ',' between its keys and '}' at its end",
    "[a\n": "the header needs ']' at its end",
    'a = "net\n': "the text has no closing quote",
    "a = 'net": "the text has no closing quote",
    'a = """net': "the text has no closing quote",
    'a = "C:\\qed"\n': "a backslash needs a second one; or put the text in single quotes",
}


@pytest.mark.parametrize("text", TEXTS)
def test_an_error_is_explained(text: str) -> None:
    with pytest.raises(tomli.TOMLDecodeError) as caught:
        tomli.loads(text)
    assert TEXTS[text] in explain_syntax_error(text, caught.value)


def test_the_caret_is_below_the_column() -> None:
    assert draw_excerpt("x = 1\nab = = 2\n", 2, 6) == "ab = = 2\n     ^"


def test_a_long_line_is_shortened_around_the_column() -> None:
    shown, caret = draw_excerpt("x" * 500 + "!", 1, 501).split("\n")
    assert len(shown) <= 101
    assert shown[len(caret) - 1] == "!"


def test_the_problem_has_line_column_and_excerpt(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = 1\nb = cpu\n")
    content = read_toml_table(path)
    assert (content.table, content.line) == ({}, 2)
    assert content.problem.startswith("is not valid TOML at column 5: 'cpu' is no value")
    assert content.excerpt == "b = cpu\n    ^"


@given(st.text(st.sampled_from("ab=1[]{}\"'.,\n \\#é\t")))
def test_every_error_can_be_explained(text: str) -> None:
    error = _parse(text)
    assert error is None or explain_syntax_error(text, error)
    assert error is None or "^" in draw_excerpt(text, error.lineno, error.colno)


def _parse(text: str) -> tomli.TOMLDecodeError | None:
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("files", "folder", "root"),
    [
        (["pyproject.toml=[tool.exporter]"], "a/b", "."),
        (["manifests/net.toml="], "manifests", "."),
        (["pyproject.toml=[tool.exporter]", "a/pyproject.toml=[project]"], "a/b", "."),
        (["pyproject.toml=[tool.exporter]", "a/pyproject.toml=[tool.exporter]"], "a/b", "a"),
        (["pyproject.toml=[tool.exporter]", "a/.git/HEAD="], "a/b", "a/b"),
        (["pyproject.toml=[project]"], "a/b", "a/b"),
    ],
)
def test_the_project_is_found_upwards(
    tmp_path: Path, files: list[str], folder: str, root: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / folder).mkdir(parents=True)
    for name, _, text in (each.partition("=") for each in files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert find_root(tmp_path / folder).resolve() == (tmp_path / root).resolve()


@pytest.mark.parametrize("name", ["pyproject.toml", "m.toml"])
@pytest.mark.parametrize("target", ["outside.toml", "repository/.git/config", "/dev/zero", ""])
def test_a_link_shows_no_line_of_another_file(tmp_path: Path, name: str, target: str) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    for each in (tmp_path / "outside.toml", repository / ".git/config"):
        each.write_text("secret = hunter2")
    path = repository / name
    if target:
        path.symlink_to(tmp_path / target)
    else:
        os.mkfifo(path)
    content = read_toml_table(path)
    assert "cannot be read" in content.problem
    assert "secret" not in str(content)
    find_root(repository)  # it does not wait


@pytest.mark.parametrize("is_repository", [False, True])
def test_a_link_to_a_manifest_of_the_repository_is_read(
    tmp_path: Path, is_repository: bool
) -> None:
    if is_repository:
        (tmp_path / ".git").touch()  # a worktree
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/a.toml").write_text("a = 1")
    (tmp_path / "project").symlink_to("shared")
    (tmp_path / "b.toml").symlink_to("project/a.toml")
    for path in (tmp_path / "b.toml", tmp_path / "project/a.toml"):
        assert read_toml_table(path).table == {"a": 1}, path
