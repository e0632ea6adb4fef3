"""Files that are not valid TOML: each gives one problem and no exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.manifest import load_project
from exporter.manifest.reading.toml_file import TomlFile, read_toml
from tests.unit.manifest.projects import make_project


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
