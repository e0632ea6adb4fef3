"""Names of checks, references to tensor files, and the form of values in messages."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence

from exporter.core.errors import suggest_nearest
from exporter.core.known_names import CHECK_STAGES

#: A path through tables and arrays: keys and indices.
KeyPath = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
#: Characters of a quoted text; longer texts are shortened.
_MAX_LENGTH = 60


def format_value(value: object) -> str:
    """Return a value in the form that messages use."""
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
            kind = "table" if isinstance(value, dict) else "list"
            return f"a {kind}" if value else f"an empty {kind}"


def quote(text: str) -> str:
    """Return the text in double quotes, shortened, with special characters escaped."""
    short = text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
    characters = []
    for char in short:
        if char in '"\\':
            characters.append(f"\\{char}")
        elif char.isprintable():
            characters.append(char)
        else:
            characters.append(char.encode("unicode_escape").decode("ascii"))
    return f'"{"".join(characters)}"'


def unexpected_value(expected: str, value: object) -> ValueError:
    return ValueError(f"expected {expected}, got {format_value(value)}")


def format_key(path: Sequence[str | int]) -> str:
    """Return a key path such as `models.alexnet.inputs[0].shape[1]`, quoted if necessary."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE_KEY.fullmatch(step) else quote(step))
    return text


def join_words(words: Iterable[str], last: str = "and") -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def parse_check_names(value: object) -> tuple[str, ...]:
    """Return the names of a check or of a list of different checks.

    Raises:
        ValueError: with the complete message.
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise unexpected_value("the name of a check or a list of names", value)
    for name in names:
        if name not in CHECK_STAGES:
            expected = f"the name of a check: {join_words(map(quote, CHECK_STAGES), 'or')}"
            hint = suggest_nearest(name, CHECK_STAGES) if isinstance(name, str) else ""
            raise ValueError(f"{unexpected_value(expected, name)}{hint}")
    if len(set(names)) < len(names):
        raise ValueError(f"contains a name twice: {join_words(map(quote, names))}")
    return tuple(names)


#: Suffixes of tensor files, and whether the file contains several tensors, each with a key.
DATA_SUFFIXES = {".npy": False, ".pb": False, ".npz": True, ".safetensors": True}
#: Suffixes of pictures, in lower case.
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def split_data_file(text: str) -> tuple[str, str]:
    """Return path and key of `"data/x.npz:key"`; the key is "" if the text has none."""
    for suffix in DATA_SUFFIXES:
        path, separator, key = text.partition(f"{suffix}:")
        if separator:
            return path + suffix, key
    return text, ""
