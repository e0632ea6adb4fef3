"""Escaped text for markdown.

An entity is never structure (CommonMark 0.31, 6.2). Each character that could be structure is
therefore written as an entity. Code spans and fences do not decode entities. A span contains only
harmless characters, and a fence is longer than any run of backticks inside it. GitHub links
references and names after it decodes entities, but not in code spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import quote

from markupsafe import Markup

from exporter.core.text import join_lines, remove_controls

#: Structure at any position of a line, or the start of HTML, an entity, an autolink or a formula.
_ANYWHERE = frozenset("\\`*[]<>|&~$@")
#: Structure at the start of a line: headings, lists, quotes, rules, underlines of headings.
_LEADING = re.compile(r"[#+=_:>-]|\d{1,9}(?=[.)](?:\s|$))")
_SPAN = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}=+*'\"<>!?#%^~@-]+")
#: Words that GitHub links: `#1`, `GH-1`, `user/repository#1`, `@name`, `name@example.org`.
_REFERENCE = re.compile(r"[\w./-]*(?:#\d|@\w|\bGH-\d)[\w#@./-]*", re.ASCII | re.IGNORECASE)
_BACKTICKS = re.compile(r"`+")


def escape_inline(value: object) -> Markup:
    """Return the value on one line, with each character shown literally.

    Returns:
        The same object if it is `Markup`, which only these functions and templates create.
    """
    return value if isinstance(value, Markup) else _escape_text(str(value))


@lru_cache(maxsize=1 << 15)  # thousands of cells have the same few texts
def _escape_text(text: str) -> Markup:
    """Return the text with references in code spans: entities alone do not prevent their links."""
    text = join_lines(text)
    parts, start = [], 0
    for match in _REFERENCE.finditer(text):
        parts += [_encode(text, start, match.start()), f"`{match[0]}`"]
        start = match.end()
    return Markup("".join((*parts, _encode(text, start, len(text)))))  # noqa: S704 - entities and spans


def _encode(text: str, start: int, end: int) -> str:
    """Return a part of the text with an entity for each special character."""
    encoded = [
        f"&#{ord(text[index])};" if _is_structure(text, index, text[index]) else text[index]
        for index in range(start, end)
    ]
    if start == 0 and encoded and (leading := _LEADING.match(text)):
        # A number starts a list only with its delimiter, so that one is escaped.
        index = leading.end() if text[0].isdigit() else 0
        if index < end:
            encoded[index] = f"&#{ord(text[index])};"
    if end == len(text) and encoded and text.endswith("#"):  # would close a heading
        encoded[-1] = f"&#{ord('#')};"
    return "".join(encoded)


def format_code(value: object) -> Markup:
    """Return the value as a code span, or as plain text if a span cannot show it."""
    text = str(value).strip()
    if _SPAN.fullmatch(text):
        return Markup(f"`{text}`")  # noqa: S704 - no backtick, pipe, backslash or newline inside
    return escape_inline(text)


def format_fence(value: object, language: Literal["text", "diff"] = "text") -> Markup:
    """Return the value as a fenced block of lines."""
    text = remove_controls(str(value).replace("\r\n", "\n").replace("\r", "\n"))
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    body = text.rstrip("\n")
    return Markup(f"{marks}{language}\n{body}\n{marks}")  # noqa: S704 - the content has shorter fences


def quote_link_target(value: object) -> Markup:
    """Return the value as one segment of a relative link."""
    quoted = quote(str(value), safe="", errors="replace")
    return Markup(quoted)  # noqa: S704 - only letters, digits, `_.-~` and `%`


def join_escaped(values: Iterable[object], separator: str = ", ") -> Markup:
    """Escape each value, then join them; jinja2's own filter escapes only HTML."""
    trusted = Markup(separator)  # noqa: S704 - text of a template, never of a model
    return trusted.join(escape_inline(value) for value in values)


def _is_structure(text: str, index: int, character: str) -> bool:
    if character in _ANYWHERE:
        return True
    match character:
        case "_":  # between letters or digits it is no emphasis
            around = (text[index - 1 : index], text[index + 1 : index + 2])
            return not all(neighbor.isalnum() for neighbor in around)
        case ":":  # `https://` is an autolink
            return text.startswith("//", index + 1)
        case ".":  # `www.` is an autolink too
            return text[max(0, index - 3) : index].casefold() == "www"
        case _:
            return False
