"""Files that are not valid TOML: each gives one problem and no exception."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.manifest import load_project
from exporter.manifest.syntax.toml_file import (
    TomlFile,
    find_key_lines,
    find_nearest_line,
    read_toml,
)
from exporter.manifest.syntax.values import KeyPath
from tests.unit.manifest.projects import DATA, make_project
from tests.unit.manifest.toml_text import documents


def _problem(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "net.toml"
    path.write_bytes(content)
    problem = read_toml(path, "manifests/net.toml")
    assert isinstance(problem, Problem)
    return str(problem)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 2 * 1024 * 1024, ": is larger than 1 MiB; a manifest must be smaller"),
        (b"x = " + b"[" * 900_000, ": is not valid TOML: it is nested too deeply"),
        (b"x = " + b"9" * 9000, ": is not valid TOML: a number has too many digits"),
        (b"a = 1\nb = \xff\n", ":2: is not UTF-8: byte 0xff"),
        (b"a = 1\n\nb = \n", (":3: is not valid TOML at column 5: the key has no value; "
             "write one after '='")),
        (b"\x00", (":1: is not valid TOML at column 1: expected a key, a header "
             "like [models.net] or a comment")),
    ],
)  # fmt: skip
def test_content(tmp_path: Path, content: bytes, message: str) -> None:
    assert _problem(tmp_path, content) == f"manifests/net.toml{message}"


def test_a_line_of_two_megabytes_of_brackets_is_one_problem_of_the_project(tmp_path: Path) -> None:
    root = make_project(tmp_path, {"manifests/net.toml": "[" * 2 * 1024 * 1024})
    with pytest.raises(ExporterError) as raised:
        load_project(root)
    assert raised.value.exit_code is ExitCode.MANIFEST
    assert [str(problem) for problem in raised.value.problems] == [
        "manifests/net.toml: is larger than 1 MiB; a manifest must be smaller"
    ]


def test_a_key_of_very_many_parts_raises_no_exception(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text("a" + ".a" * 20_000 + " = 1")
    assert isinstance(read_toml(path, "net.toml"), Problem | TomlFile)


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be read" in str(read_toml(tmp_path, "net.toml"))
    assert "cannot be read" in str(read_toml(tmp_path / "none", "net.toml"))


@given(content=st.binary(max_size=64))
def test_any_bytes_are_a_file_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    assert isinstance(read_toml(path, "any.toml"), Problem | TomlFile)


def _lines(text: str) -> dict[KeyPath, int]:
    document = textwrap.dedent(text).lstrip("\n")
    tomli.loads(document)
    return dict(find_key_lines(document))


def _paths(node: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _paths(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _paths(value, (*path, index))


def test_dotted_quoted_and_spaced_keys() -> None:
    lines = _lines(
        """
        a.b = 1
        "a c" . 'd' = 2
        "é\\t" = 3
        a."b.c" = 4
        """
    )
    assert lines["a",] == lines["a", "b"] == 1
    assert lines["a c", "d"] == 2
    assert lines["é\t",] == 3
    assert lines["a", "b.c"] == 4


def test_items_of_arrays_and_tables_over_several_lines() -> None:
    lines = _lines(
        """
        x = [
          { a = 1 }, # ] not the end
          # { b = 0 }
          { b = [1,
                 2], c = 3 },
        ]
        y = 1979-05-27 07:32:00
        z = 0
        """
    )
    assert lines["x",] == 1
    assert lines["x", 0, "a"] == 2
    assert lines["x", 1] == lines["x", 1, "b"] == 4
    assert lines["x", 1, "b", 1] == lines["x", 1, "c"] == 5
    assert lines["y",] == 7
    assert lines["z",] == 8


def test_texts_that_look_like_toml() -> None:
    lines = _lines(
        '''
        a = """
        [table]
        key = 1 \\""" still
        """""
        b = \'\'\'
        [[other]]\'\'\'\'
        c = "# [no]" # [nor]
        d = '\\'
        e = 1
        '''
    )
    assert {key: line for (key,), line in list(lines.items())[1:]} == {
        "a": 1,
        "b": 5,
        "c": 7,
        "d": 8,
        "e": 9,
    }


def test_tables_have_the_line_of_their_header_and_arrays_count() -> None:
    lines = _lines(
        """
        [models.net.inputs]
        [models.net]
        seed = 1
        [[models.net.cases]]
        name = "a"
        [models.net.cases.values]
        x = 1
        [[models.net.cases]]
        name = "b"
        [[models.net.cases.deep]]
        [[models.net.cases.deep]]
        y = 2
        """
    )
    assert lines["models",] == 1
    assert lines["models", "net"] == 2
    assert lines["models", "net", "cases", 0, "values", "x"] == 7
    assert lines["models", "net", "cases", 1, "name"] == 9
    assert lines["models", "net", "cases", 1, "deep", 1, "y"] == 12


def test_a_missing_key_has_the_line_of_its_parent() -> None:
    lines = _lines("[a]\nb = 1\n")
    assert find_nearest_line(lines, ("a", "c", 3)) == 1
    assert find_nearest_line(lines, ("z",)) == 1


def test_windows_line_ends() -> None:
    assert find_key_lines('a = 1\r\nb = """\r\n"""\r\n[c]\r\nd = 2\r\n')["c", "d"] == 5


def test_nesting_up_to_the_limit_of_tomli() -> None:
    text = "a = " + "[" * 300 + "]" * 300
    assert len(find_key_lines(text)) == len(list(_paths(tomli.loads(text))))


@given(documents())
def test_every_path_of_generated_documents_has_its_line(
    document: tuple[str, dict[KeyPath, int]],
) -> None:
    text, expected = document
    lines = find_key_lines(text)
    assert set(lines) == set(_paths(tomli.loads(text)))
    assert {path: lines[path] for path in expected} == expected


@given(documents(), st.data())
def test_lines_agree_with_the_shortest_prefix_that_has_the_path(
    document: tuple[str, dict[KeyPath, int]], data: st.DataObject
) -> None:
    """Find a line with tomli only, which is slow and has no lines inside statements."""
    text, expected = document
    path = data.draw(st.sampled_from(sorted(expected, key=str)))
    lines = text.split("\n")
    for count in range(1, len(lines) + 1):
        try:
            prefix = tomli.loads("\n".join(lines[:count]))
        except tomli.TOMLDecodeError:
            continue
        if path in set(_paths(prefix)):
            assert expected[path] <= count
            break
    else:
        pytest.fail(f"{path} is not in the document")


@pytest.mark.parametrize("folder", ["valid", "invalid"])
def test_every_path_of_the_corpus_has_a_line(folder: str) -> None:
    seen = 0
    for file in (DATA / folder).rglob("*.toml"):
        try:
            text = file.read_text(encoding="utf-8")
            table = tomli.loads(text)
        except (ValueError, RecursionError):
            continue
        seen += 1
        assert set(find_key_lines(text)) == set(_paths(table)), file.name
    assert seen >= 3
