"""Escaped text for markdown.

Input: names, messages and logs from models, tools and manifests. Output: `Markup` with the same
visible characters, which cannot add a row, heading, link, image or HTML element. Templates use
these functions as their `finalize` and their filters.

An entity is never structure (CommonMark 0.31, 6.2). Each character that could be structure is
therefore written as an entity. Code spans and fences do not decode entities. A span contains only
harmless characters, and a fence is longer than any run of backticks inside it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import quote

from markupsafe import Markup

from exporter.core.sanitize import join_lines, remove_controls

#: Structure at any position of a line, or the start of HTML, an entity, an autolink or a formula.
_ANYWHERE = frozenset("\\`*[]<>|&~$@")
#: Structure at the start of a line: headings, lists, quotes, rules, underlines of headings.
_LEADING = re.compile(r"[#+=_:>-]|\d{1,9}(?=[.)](?:\s|$))")
_SPAN = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}=+*'\"<>!?#%^~@-]+")
_BACKTICKS = re.compile(r"`+")


def escape_inline(value: object) -> Markup:
    """Return the value on one line, with each character shown literally.

    Returns:
        The same object if it is `Markup`, which only these functions and templates create.
    """
    return value if isinstance(value, Markup) else _escape_text(str(value))


@lru_cache(maxsize=1 << 15)  # thousands of cells have the same few texts
def _escape_text(text: str) -> Markup:
    text = replace_invisible(join_lines(text))
    leading = _LEADING.match(text)
    encoded = [
        f"&#{ord(character)};" if _is_structure(text, index, character) else character
        for index, character in enumerate(text)
    ]
    if leading:
        # A number starts a list only with its delimiter, so that one is escaped.
        index = leading.end() if text[0].isdigit() else 0
        encoded[index] = f"&#{ord(text[index])};"
    if text.endswith("#"):  # would close a heading and disappear
        encoded[-1] = f"&#{ord('#')};"
    return Markup("".join(encoded))  # noqa: S704 - every special character is an entity


def format_code(value: object) -> Markup:
    """Return the value as a code span, or as plain text if a span cannot show it."""
    text = str(value).strip()
    if _SPAN.fullmatch(text):
        return Markup(f"`{text}`")  # noqa: S704 - no backtick, pipe, backslash or newline inside
    return escape_inline(text)


def format_fence(value: object, language: Literal["text", "diff"] = "text") -> Markup:
    """Return the value as a fenced block of lines."""
    lines = remove_controls(str(value).replace("\r\n", "\n").replace("\r", "\n"))
    text = replace_invisible(lines, keep="\n\t")
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


def replace_invisible(text: str, keep: str = "") -> str:
    """Return the text with U+FFFD for each control, format and surrogate character."""
    if text.isprintable():  # contains none of these categories
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


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
