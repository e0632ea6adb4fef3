"""Find the line of every key in TOML text that tomli accepts.

tomli reports lines only for syntax errors. This module scans the text again for its keys. It skips
strings and comments, and tomli splits dotted and quoted keys. A search for the shortest prefix that
parses and contains the key would need less code, but it only finds the last line of an array over
several lines, and every entry needs its own line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tomli

from exporter.manifest.syntax.message_format import KeyPath

_TOKEN = re.compile(
    r"""
      [ \t\r]+ | \#[^\n]*                                    # ignored
    | (?P<newline>\n)
    | (?P<text>
          \"{3} (?: [^\\] | \\. )*? \"{3,5} | '{3} .*? '{3,5}  # up to two quotes may end the text
        | \" (?: [^"\\\n] | \\. )* \" | ' [^'\n]* '
      )
    | (?P<mark> [\[\]{},=] )
    | (?P<bare> [^\s\[\]{},=\#"']+ )                         # keys with dots, numbers, dates
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def find_key_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line of each key, each item of an array and each table header.

    Args:
        text: A document that tomli accepts.

    Returns:
        Lines from 1, by path; `()` is line 1. A table without a header has the line of its first
        key.
    """
    return _Reader(text).read_document()


def find_nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of `path`, or of its nearest parent if it does not exist."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _scan(text)
        self._next = next(self._tokens)
        self._lines: dict[KeyPath, int] = {(): 1}
        self._sizes: dict[KeyPath, int] = {}

    def read_document(self) -> Mapping[KeyPath, int]:
        table: KeyPath = ()
        while self._next.kind != "end":
            if self._next.text == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
        return self._lines

    def _advance(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _read_header(self) -> KeyPath:
        line = self._advance().line
        if is_array := self._next.text == "[":
            self._advance()
        path: KeyPath = ()
        *parents, last = self._read_key("]")
        for step in parents:
            path = (*path, step)
            self._lines.setdefault(path, line)
            if path in self._sizes:  # `[models.x.cases.values]` belongs to the last case
                path = (*path, self._sizes[path] - 1)
        path = (*path, last)
        if not is_array:
            self._lines[path] = line
            return path
        self._advance()
        self._lines.setdefault(path, line)
        index = self._sizes.get(path, 0)
        self._sizes[path] = index + 1
        self._lines[(*path, index)] = line
        return (*path, index)

    def _read_pair(self, table: KeyPath) -> None:
        line = self._next.line
        for step in self._read_key("="):
            table = (*table, step)
            self._lines.setdefault(table, line)
        self._read_value(table)

    def _read_key(self, end: str) -> tuple[str, ...]:
        """Read a key and the mark after it."""
        text = ""
        while self._next.text != end or self._next.kind != "mark":
            text += self._advance().text
        self._advance()
        if _PLAIN_KEY.fullmatch(text):
            return tuple(text.split("."))
        keys: list[str] = []
        inner: object = tomli.loads(f"{text} = 0")
        while isinstance(inner, dict):
            ((key, inner),) = inner.items()
            keys.append(key)
        return tuple(keys)

    def _read_value(self, path: KeyPath) -> None:
        """Read a value; tomli's limit on the nesting applies before Python's."""
        opening = self._advance()
        index = 0
        while opening.text in ("[", "{"):
            match self._next.text:
                case "]" | "}":
                    self._advance()
                    return
                case ",":
                    self._advance()
                case _ if opening.text == "[":
                    self._lines.setdefault((*path, index), self._next.line)
                    self._read_value((*path, index))
                    index += 1
                case _:
                    self._read_pair(path)
        # A date may have a time after a space.
        while self._next.kind == "bare" and self._next.line == opening.line:
            self._advance()


def _scan(text: str) -> Iterator[_Token]:
    """Yield all tokens except spaces, comments and newlines, and then endless end tokens."""
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "newline":
            line += 1
        elif match.lastgroup:
            yield _Token(match.lastgroup, match[0], line)
            line += match[0].count("\n")
    while True:
        yield _Token("end", "", line)
