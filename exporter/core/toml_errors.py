"""Syntax errors of TOML files, explained with the correct notation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import tomli

#: Characters of an excerpt.
_WIDTH = 100
_HEADER = re.compile(r"\s*\[{1,2}\s*(?P<name>[^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?P<key>[\w.'"-]+)\s*=""")
_Explain = Callable[[str, tomli.TOMLDecodeError, re.Match[str]], str]
#: Values that are no TOML, with the correct notation.
_NEEDS_QUOTES = "a text needs quotes, and only true, false, numbers and dates have none"
_LIST = "the list needs ',' between its items and ']' at its end"
_ONE_VALUE = "expected the end of the line after the value; a text or a range needs quotes"


def explain_syntax_error(text: str, error: tomli.TOMLDecodeError) -> str:
    """Return the problem and its fix, with the line of an earlier definition."""
    for pattern, explain in _EXPLANATIONS.items():
        if match := re.fullmatch(pattern, error.msg):
            if isinstance(explain, str):
                return explain.format(*match.groups())
            return explain(text, error, match)
    return error.msg[:1].lower() + error.msg[1:]


def draw_excerpt(text: str, line: int, column: int) -> str:
    """Return the line of a file with a caret below a column; both are counted from 1."""
    content = next(islice(text.split("\n"), line - 1, None), "").rstrip("\r")
    start = max(0, column - _WIDTH)
    shown = "".join(each if each.isprintable() else " " for each in content[start:][:_WIDTH])
    return f"{shown}\n{' ' * (column - 1 - start)}^"


def _explain_table(text: str, error: tomli.TOMLDecodeError, match: re.Match[str]) -> str:
    path = ".".join(re.findall(r"'([^']*)'", match[1]))
    header = f"[{path}]"
    earlier = _find_header(text, path, error.lineno)
    if earlier is None:
        return f"{header} is defined twice: here and by a key; remove one of them"
    return f"{header} is defined twice, first at line {earlier}; merge them or rename one"


def _explain_key(text: str, error: tomli.TOMLDecodeError, _: re.Match[str]) -> str:
    lines = text.split("\n")
    current = _KEY.match(lines[error.lineno - 1])
    if current is None:
        return "a key that has a value already becomes a table here; rename one of them"
    key = current["key"]
    earlier = None
    for number, line in enumerate(lines[: error.lineno - 1], 1):
        if _HEADER.fullmatch(line):
            earlier = None
        elif (match := _KEY.match(line)) and match["key"] == key:
            earlier = earlier or number
    first = f", first at line {earlier}" if earlier else ""
    return f"the key '{key}' is defined twice{first}; remove one of them"


def _explain_value(text: str, error: tomli.TOMLDecodeError, _: re.Match[str]) -> str:
    rest = text.split("\n")[error.lineno - 1][error.colno - 1 :].strip()
    if not rest:
        is_list = text[: error.pos].rstrip().endswith(("[", ","))
        return _LIST if is_list else "the key has no value; write one after '='"
    return f"{rest.split()[0].rstrip(',]}')!r} is no value; {_NEEDS_QUOTES}"


def _find_header(text: str, path: str, end: int) -> int | None:
    """Return the first line before `end` with the header of this table."""
    names: Iterator[tuple[int, str]] = (
        (number, re.sub(r"[\s'\"]", "", match["name"]))
        for number, line in enumerate(text.split("\n")[: end - 1], 1)
        if (match := _HEADER.fullmatch(line))
    )
    return next((number for number, name in names if name == path), None)


#: A message of tomli -> its explanation.
_EXPLANATIONS: Mapping[str, str | _Explain] = {
    r"Cannot declare \((.*)\) twice": _explain_table,
    r"Cannot overwrite a value": _explain_key,
    r"Invalid value": _explain_value,
    r"Duplicate inline table key '(.*)'": (
        "the key '{}' is defined twice in this table; remove one of them"
    ),
    r"Expected '=' after a key in a key/value pair": "expected '=' after the key",
    r"Expected newline or end of document after a statement": _ONE_VALUE,
    r"Invalid statement": "expected a key, a header like [models.net] or a comment",
    r"Unclosed array": _LIST,
    r"Unclosed inline table": "the table needs ',' between its keys and '}}' at its end",
    r"Expected '\]' at the end of a table declaration": "the header needs ']' at its end",
    r"Illegal character '\\n'|Unterminated string|Expected \"'\"": "the text has no closing quote",
    r"Unescaped '\\' in a string": (
        "a backslash needs a second one; or put the text in single quotes"
    ),
}
