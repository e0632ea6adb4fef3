"""Read a TOML file with the line of each key, and collect its problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from exporter.core.errors import Location, Problem
from exporter.core.toml_table import read_toml_table
from exporter.manifest.syntax.values import KeyPath, format_key, join_words

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


@lru_cache(maxsize=1 << 10)  # two revisions of a project share most of their files
def find_key_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line of each key, each item of an array and each table header, from 1.

    A table without a header has the line of its first key.
    """
    return _Reader(text).read_document()


def find_nearest_line(lines: Mapping[KeyPath, int], key_path: KeyPath) -> int:
    """Return the line of `path`, or of its nearest parent if it does not exist."""
    while key_path not in lines:
        key_path = key_path[:-1]
    return lines[key_path]


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
        key_path: KeyPath = ()
        *parents, last = self._read_key("]")
        for step in parents:
            key_path = (*key_path, step)
            self._lines.setdefault(key_path, line)
            if key_path in self._sizes:  # `[models.x.cases.values]` belongs to the last case
                key_path = (*key_path, self._sizes[key_path] - 1)
        key_path = (*key_path, last)
        if not is_array:
            self._lines[key_path] = line
            return key_path
        self._advance()
        self._lines.setdefault(key_path, line)
        index = self._sizes.get(key_path, 0)
        self._sizes[key_path] = index + 1
        self._lines[(*key_path, index)] = line
        return (*key_path, index)

    def _read_pair(self, table: KeyPath) -> None:
        line = self._next.line
        for step in self._read_key("="):
            table = (*table, step)
            self._lines.setdefault(table, line)
        self._read_value(table)

    def _read_key(self, end: str) -> tuple[str, ...]:
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

    def _read_value(self, key_path: KeyPath) -> None:
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
                    self._lines.setdefault((*key_path, index), self._next.line)
                    self._read_value((*key_path, index))
                    index += 1
                case _:
                    self._read_pair(key_path)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A file that tomli accepts."""

    name: str
    """Relative to the project's root, with forward slashes."""
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def build_problem(self, key_path: KeyPath, message: str) -> Problem:
        """Return a problem at a key of this file, or at its parent if the key does not exist."""
        line = find_nearest_line(self.lines, key_path)
        location = Location(file=self.name, line=line if key_path else None)
        return Problem(message=message, location=location, key=format_key(key_path))


def read_toml(path: Path, name: str) -> TomlFile | Problem:
    """Read one file, with its name in messages; return the problem if it cannot be read."""
    content = read_toml_table(path)
    if content.problem:
        location = Location(file=name, line=content.line)
        return Problem(message=content.problem, location=location, excerpt=content.excerpt)
    return TomlFile(name=name, table=content.table, lines=find_key_lines(content.text))


#: Models that a message lists by ID.
_MAX_MODELS = 3


@dataclass(frozen=True, slots=True)
class ProblemCollector:
    """Problems, each with the models that inherit it from `[defaults]` or a parent."""

    _models: dict[Problem, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Problem]:
        """Yield the problems without the names of models."""
        return iter(self._models)

    def include(self, other: ProblemCollector) -> None:
        for problem in other:
            for model_id in other.find_models(problem) or ("",):
                self.add(problem, model_id=model_id)

    def find_models(self, problem: Problem) -> tuple[str, ...]:
        return tuple(self._models.get(problem, ()))

    def add(self, problem: Problem, *, model_id: str = "") -> None:
        models = self._models.setdefault(problem, [])
        if model_id and model_id not in models:
            models.append(model_id)

    def list_problems(self) -> tuple[Problem, ...]:
        """Return all problems, ordered by file and line."""
        problems = []
        for problem, models in self._models.items():
            names = [format_key(("models", model_id)) for model_id in models]
            if len(names) > _MAX_MODELS:
                names[_MAX_MODELS:] = [f"{len(names) - _MAX_MODELS} more"]
            suffix = f" (for {join_words(names)})" if names else ""
            problems.append(replace(problem, message=f"{problem.message}{suffix}"))
        return tuple(sorted(problems, key=_sort_key))


def _sort_key(problem: Problem) -> tuple[str, int]:
    location = problem.location
    return (location.file, location.line or 0) if location else ("", 0)
