"""Any text in a manifest gives a manifest or problems, and never another exception."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest, load_project
from exporter.manifest.schema.entry import ModelEntry
from exporter.manifest.schema.settings import ProjectTable
from exporter.manifest.schema.tables import InputTable
from tests.unit.manifest.projects import DATA, ENTRY, make_project
from tests.unit.manifest.toml_text import plain_values, toml

_CORPUS = [
    file.read_text(encoding="utf-8")
    for folder in ("valid", "invalid")
    for file in sorted((DATA / folder).glob("*.toml"))
    if file.name not in ("byte-order-mark.toml", "not-utf8.toml")
]
_PIECES = [
    *("1", "-1", "0", "1.5", "nan", "inf", "true", "2026-01-01", "10:00:00", "10e400"),
    *('""', '"x"', '"\\u0000"', '"\\U0001F600"', '"9..21"', '"args[0]"', '"models/vision.py:make"'),
    *("[]", "{}", "[1]", '["a"]', "[[1]]", "{ a = 1 }", "[{}]", "99999999999999999999999999"),
]
_KEYS = st.sampled_from([*ModelEntry.model_fields, "x", ""])
_VALUES = st.one_of(
    plain_values(),
    st.lists(
        st.dictionaries(st.sampled_from([*InputTable.model_fields]), plain_values()), max_size=2
    ),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


def _check(root: Path, text: str, project: str = "") -> None:
    (root / "manifests" / "net.toml").write_text(text, encoding="utf-8", newline="")
    (root / "pyproject.toml").write_text(project, encoding="utf-8", newline="")
    try:
        result: Manifest | ExporterError = load_project(root)
    except ExporterError as error:
        result = error
    if isinstance(result, Manifest):
        assert result.models
        for model in result.models:
            assert type(model).model_validate_json(model.to_json()).id == model.id
        return
    assert result.exit_code is ExitCode.MANIFEST
    assert result.problems
    lines = text.count("\n") + project.count("\n") + 1
    for problem in result.problems:
        assert str(problem).isprintable(), "one line, safe to print"
        assert problem.location is not None
        assert (problem.location.line or 1) <= lines


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text(root: Path, text: str) -> None:
    _check(root, text)


@given(table=st.dictionaries(_KEYS, _VALUES, max_size=6))
@settings(max_examples=50)
def test_any_entry(root: Path, table: dict[str, Any]) -> None:
    _check(root, f"format = 1\nmodels.net = {toml(table)}\n")


@given(document=st.dictionaries(st.sampled_from(["format", "defaults", "models"]), plain_values()))
@settings(max_examples=50)
def test_any_document(root: Path, document: dict[str, Any]) -> None:
    _check(root, "".join(f"{key} = {toml(value)}\n" for key, value in document.items()))


@given(table=st.dictionaries(st.sampled_from([*ProjectTable.model_fields]), plain_values()))
@settings(max_examples=50)
def test_any_settings(root: Path, table: dict[str, Any]) -> None:
    _check(root, f"format = 1\n[models.net]\n{ENTRY}", f"[tool]\nexporter = {toml(table)}\n")


@given(st.data())
def test_the_corpus_with_other_values(root: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(_CORPUS))
    for _ in range(data.draw(st.integers(1, 3))):
        spans = [match.span(1) for match in re.finditer(r"= ?([^=\n,\]}]+)", text)]
        if spans:
            start, end = data.draw(st.sampled_from(spans))
            text = text[:start] + data.draw(st.sampled_from(_PIECES)) + text[end:]
    _check(root, text)


@given(value=plain_values())
def test_generated_values_are_read_by_tomli(value: Any) -> None:
    read = tomli.loads(f"x = {toml(value)}")["x"]
    assert toml(read) == toml(value)
