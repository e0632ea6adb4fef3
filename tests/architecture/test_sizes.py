"""Functions stay below the limits of docs/style.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("exporter", "manifests", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "data" not in path.parts
)
MOST_LINES_OF_A_FUNCTION = 80


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_something_to_measure() -> None:
    assert ROOT / "exporter" / "records" / "record.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=names)
def test_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    ]
    assert not long


@pytest.mark.parametrize("path", FILES, ids=names)
def test_names_are_specific(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc"}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.is_relative_to(ROOT / "exporter")], ids=names
)
def test_a_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
