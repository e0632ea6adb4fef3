"""TOML text that tomli accepts in, the line of every key path out.

tomli gives lines for syntax errors alone. This reads the text once more for its keys: strings and
comments are skipped as wholes, dotted and quoted keys are taken apart by tomli itself. Finding the
shortest prefix of the text that parses and has the path would need less code, but it can say no
more than the last line of an array over several lines, and every entry needs its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tomli

from exporter.manifest.syntax.message_format import KeyPath

_TOKEN = re.compile(
    r"""
      [ \t\r]+ | \#[^\n]*                                    # nothing to see
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
    """The line on which each key, each item of an array and each table header stands.

    Args:
        text: A document that tomli has accepted.

    Returns:
        Lines from 1, by path; `()` is line 1. Tables without a header have the line of their
        first key.
    """
    return _Reader(text).document()


def find_nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of `path`, or where it does not exist, of what it would stand in."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._lines: dict[KeyPath, int] = {(): 1}
        self._sizes: dict[KeyPath, int] = {}

    def document(self) -> Mapping[KeyPath, int]:
        table: KeyPath = ()
        while self._next.kind != "end":
            if self._next.text == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _header(self) -> KeyPath:
        line = self._take().line
        if is_array := self._next.text == "[":
            self._take()
        path: KeyPath = ()
        *parents, last = self._key("]")
        for step in parents:
            path = (*path, step)
            self._lines.setdefault(path, line)
            if path in self._sizes:  # `[models.x.cases.values]` is about the last case
                path = (*path, self._sizes[path] - 1)
        path = (*path, last)
        if not is_array:
            self._lines[path] = line
            return path
        self._take()
        self._lines.setdefault(path, line)
        index = self._sizes.get(path, 0)
        self._sizes[path] = index + 1
        self._lines[(*path, index)] = line
        return (*path, index)

    def _pair(self, table: KeyPath) -> None:
        line = self._next.line
        for step in self._key("="):
            table = (*table, step)
            self._lines.setdefault(table, line)
        self._value(table)

    def _key(self, end: str) -> tuple[str, ...]:
        """Takes a key and the mark after it."""
        text = ""
        while self._next.text != end or self._next.kind != "mark":
            text += self._take().text
        self._take()
        if _PLAIN_KEY.fullmatch(text):
            return tuple(text.split("."))
        return tuple(_only_path(tomli.loads(f"{text} = 0")))

    def _value(self, path: KeyPath) -> None:
        """Takes a value; one call per level, so that tomli's own limit is the first to be met."""
        opening = self._take()
        index = 0
        while opening.text in ("[", "{"):
            match self._next.text:
                case "]" | "}":
                    self._take()
                    return
                case ",":
                    self._take()
                case _ if opening.text == "[":
                    self._lines.setdefault((*path, index), self._next.line)
                    self._value((*path, index))
                    index += 1
                case _:
                    line, inner = self._next.line, path
                    for step in self._key("="):
                        inner = (*inner, step)
                        self._lines.setdefault(inner, line)
                    self._value(inner)
        # A date may be followed by a time after a space.
        while self._next.kind == "bare" and self._next.line == opening.line:
            self._take()


def _tokens(text: str) -> Iterator[_Token]:
    """Everything but space, comments and ends of lines; after the last, ends without end."""
    line = 1
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "newline":
            line += 1
        elif found.lastgroup:
            yield _Token(found.lastgroup, found[0], line)
            line += found[0].count("\n")
    while True:
        yield _Token("end", "", line)


def _only_path(table: Mapping[str, object]) -> Iterator[str]:
    """The keys of tables that hold one key each."""
    inner: object = table
    while isinstance(inner, dict):
        ((key, inner),) = inner.items()
        yield key
