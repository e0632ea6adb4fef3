"""Read a TOML file and the settings of a project in `pyproject.toml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

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


T = TypeVar("T")

#: The file and the keys of the project's settings.
SETTINGS_FILE = "pyproject.toml"
SETTINGS_KEYS = ("tool", "exporter")
#: A larger file is not a manifest; parsing it would take minutes.
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """The content of a TOML file, or the problem with it."""

    text: str = ""
    table: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why the file cannot be read; empty if it can."""
    line: int | None = None
    """The line of the problem."""
    excerpt: str = ""
    """The content of the line, with a caret below the column of the problem."""


def read_toml_table(path: Path) -> TomlTable:
    """Read a TOML file; report a problem as a value."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        return TomlTable(problem=f"cannot be read: {error.strerror or error}")
    if len(content) > _MAX_BYTES:
        return TomlTable(problem="is larger than 1 MiB; a manifest must be smaller")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return TomlTable(problem=f"is not UTF-8: byte 0x{content[error.start]:02x}", line=line)
    if text.startswith("\ufeff"):
        problem = "begins with a byte order mark; save it as UTF-8 without one"
        return TomlTable(problem=problem, line=1)
    try:
        return TomlTable(text=text, table=tomli.loads(text))
    except tomli.TOMLDecodeError as error:
        message = explain_syntax_error(text, error)
        return TomlTable(
            problem=f"is not valid TOML at column {error.colno}: {message}",
            line=error.lineno,
            excerpt=draw_excerpt(text, error.lineno, error.colno),
        )
    except RecursionError:
        return TomlTable(problem="is not valid TOML: it is nested too deeply")
    except ValueError:  # Python limits the digits of a number
        return TomlTable(problem="is not valid TOML: a number has too many digits")


def find_settings(document: Mapping[str, Any]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Find `[tool.exporter]` in the content of a `pyproject.toml`.

    Returns:
        The table, or None if it does not exist; and the keys of a value that should be a table
        and is not, empty if all are tables.
    """
    table: object = document
    for end, key in enumerate(SETTINGS_KEYS, 1):
        if not isinstance(table, dict) or key not in table:
            return None, ()
        table = table[key]
        if not isinstance(table, dict):
            return None, SETTINGS_KEYS[:end]
    return (table, ()) if isinstance(table, dict) else (None, ())


def find_root(folder: Path = Path()) -> Path:
    """Return the nearest folder upwards with a project, within its repository, or the folder."""
    with suppress(OSError):  # such as a current folder that was removed
        for each in (folder, *folder.absolute().parents):
            settings = each / SETTINGS_FILE
            has_settings = settings.is_file() and b"tool.exporter" in settings.read_bytes()
            if has_settings or any((each / "manifests").glob("*.toml")):
                return each
            if (each / ".git").exists():
                break
    return folder


def read_setting(root: Path, key: str, default: T) -> T:
    """Return a value of `[tool.exporter]`, or the default if it has another type or is missing.

    For messages, and for processes that start before the settings are validated.
    """
    settings = find_settings(read_toml_table(root / SETTINGS_FILE).table)[0] or {}
    value = settings.get(key)
    return value if isinstance(value, type(default)) else default
