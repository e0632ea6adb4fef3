"""Text in the formats of the report: markdown, numbers and status marks.

An entity is never structure (CommonMark 0.31, 6.2). Each character that could be structure is
therefore written as an entity. Code spans and fences do not decode entities. A span contains only
harmless characters, and a fence is longer than any run of backticks inside it. GitHub links
references and names after it decodes entities, but not in code spans.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote

from markupsafe import Markup

from exporter.core.text import format_two_digits, join_lines, redact, remove_controls
from exporter.records.record import ELSEWHERE_PREFIX, Record, Status

#: Structure at any position of a line, or the start of HTML, an entity, an autolink or a formula.
_ANYWHERE = frozenset("\\`*[]<>|&~$@")
#: Structure at the start of a line: headings, lists, quotes, rules, underlines of headings.
_LEADING = re.compile(r"[#+=_:>-]|\d{1,9}(?=[.)](?:\s|$))")
_SPAN = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}=+*'\"<>!?#%^~@-]+")
_SENTENCE_SPAN = re.compile(f"( ?)`({_SPAN.pattern})`( ?)")
#: Words that GitHub links: `#1`, `GH-1`, `user/repository#1`, `@name`, `name@example.org`.
#: The search begins only at the start of a word, because it is quadratic in a long word otherwise.
_REFERENCE = re.compile(
    r"(?<![\w./-])[\w./-]*(?:#\d|@\w|\bGH-\d)[\w#@./-]*", re.ASCII | re.IGNORECASE
)
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


def format_sentence(value: object) -> Markup:
    """Return the value with its own code spans, such as the commands of a message."""
    line, text, start = join_lines(str(value)), Markup(""), 0
    for match in _SENTENCE_SPAN.finditer(line):
        before, code, after = match.groups()
        text += escape_inline(line[start : match.start()]) + before + format_code(code) + after
        start = match.end()
    return text + escape_inline(line[start:])


def format_fence(
    value: object, language: Literal["text", "diff", "python", "cpp"] = "text"
) -> Markup:
    text = remove_controls(str(value).replace("\r\n", "\n").replace("\r", "\n"))
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    body = text.rstrip("\n")
    return Markup(f"{marks}{language}\n{body}\n{marks}")  # noqa: S704 - the content has shorter fences


def format_place(text: str, url: str) -> Markup:
    """Return `net.py:8` as a link to the line of the file below `url`; as code if it is empty."""
    if not url:
        return format_code(text)
    file, _, line = text.partition(":")
    anchor = f"#L{line}" if line.isdigit() else ""
    target = quote_link_target(url, "/:") + "/" + quote_link_target(file, "/")
    return Markup("[{}]({}{})").format(format_code(text), target, anchor)


def quote_link_target(value: object, safe: str = "") -> Markup:
    """Return the value as one segment of a relative link, or with the separators in `safe`."""
    quoted = quote(str(value), safe=safe, errors="replace")
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


#: Characters.
_MESSAGE_LENGTH = 400
_DETAIL_LENGTH = 12_000
#: Floats with machine-dependent digits: an exponent, or at least four decimals. A version
#: (`2.13.0`) has neither.
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[+-]?\d+(?![\w.])|(?<![\w.])\d+\.\d{4,}(?![\w.])")


def format_magnitude(value: float) -> str:
    """Return the next power of ten, which is stable across machines in almost all cases."""
    if not math.isfinite(value) or value <= 0:
        return format_two_digits(value)
    exponent = math.ceil(math.log10(value) - 1e-12)
    return f"≤ {10**exponent}" if 0 <= exponent < 4 else f"≤ 1e{exponent}"


def format_count(number: int) -> str:
    """Return a count with separated thousands: `61 100 840`."""
    return f"{number:,}".replace(",", " ")


def clean_message(text: str) -> str:
    """Return one line of a record without the parts that depend on the machine or the run."""
    return _round_floats(redact(" ".join(text.split()), limit=_MESSAGE_LENGTH))


def clean_detail(text: str) -> str:
    """Return many lines of a record without the parts that depend on the machine or the run."""
    return _round_floats(redact(text, limit=_DETAIL_LENGTH))


def _round_floats(text: str) -> str:
    return _FLOAT.sub(lambda match: f"{float(match.group()):.2g}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A symbol with its word, its meaning, and its letter and color in a picture."""

    symbol: str
    word: str
    meaning: str
    letter: str
    fill: str
    """A color with enough contrast to white letters."""


_PROVED_ELSEWHERE = "unavailable here; committed evidence claims that it passed on another machine"
#: Symbol, letter, color and meaning by the word.
_LOOKS: dict[Status | str, tuple[str, str, str, str]] = {
    Status.PASS: ("✅", "P", "#2a7d3c", "all promises are proved on the file"),
    Status.XFAIL: ("🟡", "x", "#8f6a00", "fails as the manifest foresees"),
    Status.FAIL: ("❌", "F", "#c0392b", "a check failed"),
    Status.ERROR: ("🟥", "E", "#a5283a", "a stage raised an error"),
    Status.CRASH: ("💥", "C", "#8e2a6b", "the worker died"),
    Status.TIMEOUT: ("⏰", "T", "#9a4a12", "the job exceeded its time limit"),
    Status.KILLED: ("💀", "K", "#5b2a86", "killed from outside, usually for its memory"),
    Status.INCONCLUSIVE: ("❓", "?", "#6a4fb0", "the comparison could not decide"),
    Status.XPASS: ("❗", "!", "#b3541e", "passes although the manifest expects a failure"),
    Status.UNAVAILABLE: ("🚫", "U", "#5f6b7a", "the device or a fitting runtime is missing here"),
    Status.SKIP: ("⏩", "S", "#4a6a8a", "skipped by the manifest"),
    "elsewhere": ("🔷", "e", "#2b6cb0", _PROVED_ELSEWHERE),
    "not run": ("⬜", ".", "#8a939e", "promised, but without a result"),
    # Beside the name of a model, and no mark of a cell.
    "initial weights": ("🎲", "i", "#5f6b7a", "the file has drawn weights and no trained ones"),
}
_MARKS = {
    word: Mark(symbol=symbol, word=str(word), meaning=meaning, letter=letter, fill=fill)
    for word, (symbol, letter, fill, meaning) in _LOOKS.items()
}
#: An unavailable cell with evidence, and a promised cell without a record; neither is green.
ELSEWHERE, NOT_RUN = _MARKS["elsewhere"], _MARKS["not run"]
INITIAL = _MARKS["initial weights"]
MARKS = {word: mark for word, mark in _MARKS.items() if isinstance(word, Status)}

#: Every mark, in the order of the statuses.
LEGEND = (*MARKS.values(), ELSEWHERE, NOT_RUN)


def choose_mark(record: Record | None) -> Mark:
    """Return the mark for a cell; a cell without a record is not run."""
    if record and record.status is Status.UNAVAILABLE:
        is_elsewhere = record.message.startswith(ELSEWHERE_PREFIX)
        return ELSEWHERE if is_elsewhere else MARKS[record.status]
    return NOT_RUN if record is None else MARKS[record.status]
