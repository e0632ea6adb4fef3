"""Generate TOML documents with the line of each key."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from exporter.manifest.syntax.values import KeyPath

Generated = tuple[str, dict[KeyPath, int]]

_KEYS = st.one_of(
    st.sampled_from(["a", "b", "models", "inputs", "x-1", "0"]), st.text(min_size=0, max_size=4)
).filter(lambda key: not any(0xD800 <= ord(char) < 0xE000 for char in key))
_SCALARS = st.sampled_from(
    [
        *("1", "-0.5", "true", "1979-05-27 07:32:00", "07:32:00", "nan"),
        *('"# ="', "'[a]'", "''", '"\\""'),
        *('"""\n[a]\nb = 1"""', "'''\n'' ]'''", '"""\\\n  x\\""""""'),
    ]
)


def plain_values(leaves: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy for all values of TOML as Python values."""
    scalars = leaves or st.one_of(
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.dates(),
        st.times(),
        st.datetimes(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    )
    keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def toml(value: Any) -> str:
    """Return a value in TOML notation, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case list():
            return f"[{', '.join(toml(item) for item in value)}]"
        case dict():
            pairs = (f"{_quoted(key)} = {toml(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}"
        case _:
            return repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f") if text.isascii() else _escaped(text)


def _escaped(text: str) -> str:
    return '"' + "".join(f"\\U{ord(char):08x}" for char in text) + '"'


@st.composite
def documents(draw: Callable[..., Any]) -> Generated:
    """Generate a document of headers, arrays of tables, and values over several lines."""
    lines: dict[KeyPath, int] = {}
    text = ""
    tables = draw(st.lists(_KEYS, max_size=4, unique=True))
    top = draw(st.lists(_KEYS.filter(lambda key: key not in tables), max_size=3, unique=True))
    for key in top:
        text += _pair(draw, (), key, text, lines)
    for table in tables:
        is_array = draw(st.booleans())
        for index in range(draw(st.integers(1, 2)) if is_array else 1):
            text += draw(st.sampled_from(["", "\n", "# [a] = '\n", "  "]))
            path: KeyPath = (table, index) if is_array else (table,)
            lines[path] = text.count("\n") + 1
            lines.setdefault(path[:1], lines[path])
            text += f"[[{_quoted(table)}]] # ]\n" if is_array else f"[ {_quoted(table)} ]\n"
            for key in draw(st.lists(_KEYS, max_size=3, unique=True)):
                text += _pair(draw, path, key, text, lines)
    return text, {(): 1, **lines}


def _pair(
    draw: Callable[..., Any], table: KeyPath, key: str, before: str, lines: dict[KeyPath, int]
) -> str:
    path = (*table, key)
    lines[path] = before.count("\n") + 1
    start = f"{_quoted(key)}\t= "
    return start + _value(draw, path, before + start, lines, depth=0) + "\n"


def _value(
    draw: Callable[..., Any], path: KeyPath, before: str, lines: dict[KeyPath, int], depth: int
) -> str:
    kind = draw(st.sampled_from(["scalar", "array", "table"])) if depth < 3 else "scalar"
    if kind == "scalar":
        return str(draw(_SCALARS))
    text = "[" if kind == "array" else "{ "
    if kind == "array":
        for index in range(draw(st.integers(0, 3))):
            text += draw(st.sampled_from(["", "\n  ", " # , ]\n"]))
            lines[*path, index] = (before + text).count("\n") + 1
            text += _value(draw, (*path, index), before + text, lines, depth + 1) + ", "
        return text + "]"
    keys = draw(st.lists(_KEYS, max_size=3, unique=True))
    for position, key in enumerate(keys):
        lines[*path, key] = (before + text).count("\n") + 1
        text += f"{_quoted(key)} = "
        text += _value(draw, (*path, key), before + text, lines, depth + 1)
        text += ", " if position < len(keys) - 1 else ""
    return text + " }"
