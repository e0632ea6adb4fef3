"""The wording of code, messages, documents and templates keeps the limits of docs/style.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "exporter"
PACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))

#: Habits of wording, and how often each may occur in 1,000 words.
LIMITS = {
    "where": (r"\bwhere\b", 2.0),
    "what": (r"\b[Ww]hat\b", 2.0),
    "say, tell, ask": (
        r"\b([Ss]a(y|ys|id|ying)|[Ss]peaks?|spoken|[Tt]ells?|told|telling|[Aa]sk(s|ed)?)\b",
        0.5,
    ),
    "hold": (r"\b([Hh]olds?|held)\b", 0.5),
    "stand": (r"\b([Ss]tands?|stood|standing)\b", 0.5),
    "nobody, whoever, whatever": (r"\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]hatever)\b", 0.3),
}
#: Conditions of docstrings and comments: at least so many in 1,000 words.
LEAST_CONDITIONS = 6.0
#: A shorter text has too few words for a rate.
LEAST_WORDS = 400
#: A string with fewer words is a key or a label and no message.
LEAST_WORDS_OF_A_MESSAGE = 4
#: Documents address a reader, so they may use these words twice as often as code and messages.
MORE_IN_DOCUMENTS = 2.0
#: Words of a line in a cell of a table, without its code.
LONGEST_CELL = 40
#: Pages that quote the words that they forbid.
QUOTING = {"style.md"}


def docstrings_and_comments(source: str) -> Iterator[str]:
    """Return each docstring and each comment of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def messages(source: str) -> Iterator[str]:
    """Return each string of a module that is a text for a reader and no docstring."""
    tree = ast.parse(source)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ) and len(node.value.split()) >= LEAST_WORDS_OF_A_MESSAGE:
            yield node.value


def prose(text: str) -> str:
    """Return a page without its code."""
    return re.sub(r"`[^`\n]*`", "code", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def long_cells(text: str) -> list[str]:
    """Return the cells of a page's tables that have too many words."""
    rows = re.findall(r"^\|(.*)\|$", re.sub(r"`[^`\n]*`", " ", text), re.MULTILINE)
    cells = (cell for row in rows for cell in re.split(r"(?<!\\)\||<br>", row))
    return [cell for cell in cells if len(cell.split()) > LONGEST_CELL]


def template_text(text: str) -> str:
    """Return the words of a template that a reader of the page sees."""
    return re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", prose(text), flags=re.DOTALL)


def problems(text: str, *, conditions: bool = False, factor: float = 1.0) -> list[str]:
    """Return each habit of wording that occurs too often."""
    count = len(text.split())
    if count < LEAST_WORDS:
        return []
    rates = {name: 1000 * len(re.findall(p, text)) / count for name, (p, _) in LIMITS.items()}
    problems_found = [
        f"{name}: {rates[name]:.1f}"
        for name, (_, most) in LIMITS.items()
        if rates[name] > factor * most
    ]
    rate = 1000 * len(re.findall(r"\b([Ii]f|[Ww]hen)\b", text)) / count
    if conditions and rate < LEAST_CONDITIONS:
        problems_found.append(f"if, when: {rate:.1f}")
    return problems_found


@cache
def file_text(path: Path) -> str:
    """Return the docstrings and comments of a file; two tests read each file of the package."""
    return "\n".join(docstrings_and_comments(path.read_text("utf-8")))


def package_text(package: Path) -> str:
    return "\n".join(map(file_text, sorted(package.rglob("*.py"))))


def test_docstrings_and_comments() -> None:
    for package in PACKAGES:
        assert not problems(package_text(package)), package


def test_conditions_are_written_with_if_and_when() -> None:
    assert not problems(package_text(PACKAGE), conditions=True)


def test_messages() -> None:
    for package in PACKAGES:
        texts = (path.read_text("utf-8") for path in sorted(package.rglob("*.py")))
        assert not problems("\n".join(m for text in texts for m in messages(text))), package


def test_documents_and_templates() -> None:
    for path in (*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))):
        if path.name not in QUOTING:
            text = prose(path.read_text("utf-8"))
            assert not problems(text, factor=MORE_IN_DOCUMENTS), path
        assert not long_cells(path.read_text("utf-8")), path
    for path in sorted((ROOT / "templates").glob("*.jinja")):
        assert not problems(template_text(path.read_text("utf-8"))), path


def test_tests_and_benchmarks() -> None:
    for name in ("tests", "benchmarks"):
        assert not problems(package_text(ROOT / name)), name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("where " + "word " * 499, []),
        ("where where " + "word " * 498, ["where: 4.0"]),
        ("It says nothing. " + "word " * 500, ["say, tell, ask: 2.0"]),
        ("What is held here. " + "word " * 400, ["what: 2.5", "hold: 2.5"]),
        ("What it says " * 10, []),
    ],
    ids=["allowed", "where", "say", "what-and-hold", "too-short"],
)
def test_the_measurement(text: str, problem: list[str]) -> None:
    assert problems(text) == problem


def test_a_cell_has_at_most_40_words_beside_its_code() -> None:
    row = f"| key | {'word ' * LONGEST_CELL}`and code` |"
    assert not long_cells(f"| a | b |\n{row}\n")
    assert len(long_cells(f"| a | b |\n{row.replace('key', 'word ' * 41)}\n")) == 1


def test_the_measurement_sees_each_kind_of_text() -> None:
    source = (
        '"""Module."""\nX = 1  # a comment\ndef f():\n    """Function."""\n    raise E("a b c d")\n'
    )
    assert {"Module.", "Function.", "# a comment"} <= set(docstrings_and_comments(source))
    assert list(messages(source)) == ["a b c d"]
    assert "hidden" not in template_text(
        "{# hidden #}{% if hidden %}{{ hidden }}<p class=hidden>shown"
    )
