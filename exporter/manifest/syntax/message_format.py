"""How messages show what users wrote: values in TOML's spelling, key paths, lists of names.

In: values and paths. Out: short one-line texts.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence

#: A path through tables and arrays: keys and indices.
KeyPath = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_LONGEST = 60


def format_value(value: object) -> str:
    """A value as a message shows it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int():
            return str(value) if abs(value) < 10**30 else "a huge number"
        case float():
            return repr(value)
        case dt.date() | dt.time():
            return f"the {'time' if isinstance(value, dt.time) else 'date'} {value.isoformat()}"
        case _:
            what = "table" if isinstance(value, dict) else "list"
            return f"a {what}" if value else f"an empty {what}"


def quote(text: str) -> str:
    """Text in double quotes, shortened, with everything escaped that could break a line."""
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    characters = (
        f"\\{char}" if char in '"\\' else char if char.isprintable() else _escaped(char)
        for char in short
    )
    return f'"{"".join(characters)}"'


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def unexpected_value(what: str, value: object) -> ValueError:
    """The commonest problem of all."""
    return ValueError(f"expected {what}, got {format_value(value)}")


def format_key(path: Sequence[str | int]) -> str:
    """`models.alexnet.inputs[0].shape[1]`; keys that are not bare stand in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE.fullmatch(step) else quote(step))
    return text


def join_words(words: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end
