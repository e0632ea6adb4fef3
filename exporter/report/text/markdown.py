"""Text that others wrote, made harmless where it stands in markdown.

In: names, messages and logs as they are. Out: `Markup` that shows the same characters and forges
no row, heading, link, image or HTML. A template gets these as its `finalize` and its filters.

An entity is never structure (CommonMark 0.31, 6.2), so that a character that could be structure
is written as one. Code spans and fences know no entities: a span holds harmless characters only,
and a fence is longer than any run of backticks inside.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup

from exporter.core.sanitize import one_line, printable

#: Structure anywhere in a line, or the start of HTML, an entity, a link by itself, a formula.
_ANYWHERE = frozenset("\\`*[]<>|&~$@")
#: Structure at the start of a line: headings, lists, quotes, rules, underlines of headings.
_LEADING = re.compile(r"[#+=_:>-]|\d{1,9}(?=[.)](?:\s|$))")
_SPAN = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}=+*'\"<>!?#%^~@-]+")
_BACKTICKS = re.compile(r"`+")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def inline(value: object) -> Markup:
    """`value` on one line, each character shown as itself.

    Markup is taken as it is: it comes from here or from the template.
    """
    return value if isinstance(value, Markup) else _inlined(str(value))


@lru_cache(maxsize=1 << 15)  # thousands of cells say the same few things
def _inlined(text: str) -> Markup:
    text = visible(one_line(text))
    leading = _LEADING.match(text)
    encoded = [
        _entity(character) if _is_structure(text, index, character) else character
        for index, character in enumerate(text)
    ]
    if leading:
        # The delimiter after a number makes the list; alone in a cell, a number stays a number.
        at = leading.end() if text[0].isdigit() else 0
        encoded[at] = _entity(text[at])
    if text.endswith("#"):  # would close a heading, and vanish
        encoded[-1] = _entity("#")
    return Markup("".join(encoded))  # noqa: S704 - whatever has a meaning is an entity


def code(value: object) -> Markup:
    """`value` as a code span, or as plain text where a span could not show it."""
    text = str(value).strip()
    if _SPAN.fullmatch(text):
        return Markup(f"`{text}`")  # noqa: S704 - no backtick, pipe, backslash or newline inside
    return inline(text)


def fence(value: object) -> Markup:
    """`value` as a fenced block of its own lines."""
    text = visible(printable(str(value).replace("\r\n", "\n").replace("\r", "\n")), keep="\n\t")
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    body = text.rstrip("\n")
    return Markup(f"{marks}text\n{body}\n{marks}")  # noqa: S704 - the fence outlasts its content


def target(value: object) -> Markup:
    """`value` as one segment of a relative link."""
    quoted = quote(str(value), safe="", errors="replace")
    return Markup(quoted)  # noqa: S704 - letters, digits, `_.-~` and `%` only


def joined(values: Iterable[object], separator: str = ", ") -> Markup:
    """Values made harmless one by one, then joined: jinja2's own filter would escape HTML only."""
    trusted = Markup(separator)  # noqa: S704 - a template's own text, never a model's
    return trusted.join(inline(value) for value in values)


def visible(text: str, keep: str = "") -> str:
    """`text` with every control, format and surrogate character shown as a replacement."""
    if text.isprintable():  # which none of these categories is
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else _REPLACED
        for character in text
    )


def _is_structure(text: str, index: int, character: str) -> bool:
    if character in _ANYWHERE:
        return True
    match character:
        case "_":  # between letters or digits it is no emphasis
            around = (text[index - 1 : index], text[index + 1 : index + 2])
            return not all(neighbour.isalnum() for neighbour in around)
        case ":":  # `https://` makes a link by itself
            return text.startswith("//", index + 1)
        case ".":  # and so does `www.`
            return text[max(0, index - 3) : index].casefold() == "www"
        case _:
            return False


def _entity(character: str) -> str:
    return f"&#{ord(character)};"
