"""Names follow docs/style.md: of the field, and no function behind a module's name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "exporter"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Words of no field, in any part of a name.
DENIED_WORDS = {
    "said",
    "says",
    "say",
    "told",
    "tell",
    "tells",
    "hear",
    "heard",
    "hears",
    "speak",
    "spoken",
    "spelled",
    "spelling",
    "nursery",
    "aside",
    "fed",
    "twin",
    "twins",
    "trouble",
    "troubles",
    "wish",
    "wished",
    "unfit",
    "impossible",
    "unsound",
    "nobody",
    "alike",
    "beginning",
    "mended",
    "sealed",
    "stood",
    "stands",
}
#: Names that do not describe the value.
DENIED_NAMES = {
    "found",
    "said",
    "place",
    "wanted",
    "alike",
    "here",
    "there",
    "mine",
    "theirs",
    "whole",
    "kept",
    "why",
    "wish",
    "meant",
    "lost",
    "answer",
    "own",
    "past",
    "lead",
}
#: Denied names that are keys of the manifest, which its tables and specs have as fields.
MANIFEST_KEYS = {"at"}


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Return each name that a module defines: classes, functions, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def words(name: str) -> list[str]:
    """Return the words of a name in snake_case or CamelCase."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def bad_names(source: str) -> list[str]:
    """Return the defined names that use denied words."""
    return sorted(
        name
        for name in set(defined_names(ast.parse(source)))
        if DENIED_WORDS & set(words(name)) or name.strip("_").lower() in DENIED_NAMES
    )


def module_name(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def test_names_are_of_the_field() -> None:
    offenders = {}
    for path in FILES:
        allowed = MANIFEST_KEYS if path.is_relative_to(PACKAGE / "manifest") else set()
        names = set(bad_names(path.read_text("utf-8"))) - allowed
        names |= DENIED_WORDS & set(words(path.stem))
        if names:
            offenders[module_name(path)] = names
    assert not offenders


def test_module_names_are_specific() -> None:
    names = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in FILES if path.stem in names]


def test_no_package_exports_a_name_of_its_own_module() -> None:
    for path in (path for path in FILES if path.name == "__init__.py"):
        modules = {file.stem for file in path.parent.glob("*.py")}
        exported = {
            alias.asname or alias.name
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert not exported & modules, path


def test_the_search_finds_each_kind() -> None:
    source = "class Troubles: ...\ndef _tell(found): ...\nheard_names = 1\nfor place in (): ...\n"
    assert bad_names(source) == ["Troubles", "_tell", "found", "heard_names", "place"]
    assert bad_names("def format_opsets(opsets): ...\nplacement = found_records = 1\n") == []
