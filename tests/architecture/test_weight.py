"""The package does not become heavier unnoticed: a change that adds weight edits `LIMITS`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The values of the day of the last edit. A commit that raises one gives the reason in its body.
LIMITS = {
    "lines of the package": 59_454,
    "lines of tests": 71_326,
    "files": 310,
    "packages": 54,
    "modules below 60 lines": 11,
    "lines of imports in 1,000 lines": 86,
    "private functions called once, in 1,000 functions": 174,
}


def list_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def count_lines(files: list[Path]) -> int:
    return sum(len(path.read_text("utf-8", "replace").splitlines()) for path in files)


def measure() -> dict[str, int]:
    """Return the weight of the package by the names of `LIMITS`."""
    files = list_files("exporter")
    modules = [path for path in files if path.name != "__init__.py"]
    imports, functions, uses = 0, Counter[str](), Counter[str]()
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        imports += sum(
            (node.end_lineno or 0) - node.lineno + 1
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[node.name] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
    once = sum(
        count
        for name, count in functions.items()
        if name.startswith("_") and not name.endswith("__") and uses[name] == 1
    )
    lines = count_lines(files)
    return {
        "lines of the package": lines,
        "lines of tests": count_lines(list_files("tests")),
        "files": len(files),
        "packages": len(files) - len(modules),
        "modules below 60 lines": sum(count_lines([path]) < 60 for path in modules),
        "lines of imports in 1,000 lines": round(1000 * imports / lines),
        "private functions called once, in 1,000 functions": round(1000 * once / functions.total()),
    }


def test_the_package_is_as_light_as_accepted() -> None:
    measured = measure()
    heavier = {name: value for name, value in measured.items() if value > LIMITS[name]}
    assert not heavier, "make it lighter, or raise the limit with the reason in the commit"
    # A limit far above the value would let the next change in.
    slack = {name: limit for name, limit in LIMITS.items() if limit > 1.02 * measured[name] + 2}
    assert not slack, f"lower the limits to the values of today: {measured}"
