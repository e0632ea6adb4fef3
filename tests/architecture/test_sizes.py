"""Functions stay below the limits of docs/style.md."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("exporter", "manifests", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "data" not in path.parts
)
MOST_LINES_OF_A_FUNCTION = 80


def test_functions_are_small() -> None:
    assert ROOT / "exporter" / "records" / "record.py" in FILES
    assert not [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    ]


def test_module_names_are_specific() -> None:
    names = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in FILES if path.stem in names]
