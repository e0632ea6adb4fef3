"""A TOML file in, its tables with the line of every key out, or the problem that it is.

What tomli raises besides its own error (nesting, huge numbers) becomes a problem as well. The size
is capped, because a file of another kind should not cost minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from exporter.core.errors import Location, Problem
from exporter.manifest.reading.toml_lines import find_key_lines, find_nearest_line
from exporter.manifest.syntax.message_format import KeyPath, format_key

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A file that tomli accepts."""

    name: str
    """Relative to the project's root, with forward slashes."""
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem at a key of this file, or where the key would stand."""
        line = find_nearest_line(self.lines, path)
        location = Location(file=self.name, line=line if path else None)
        return Problem(message=message, location=location, key=format_key(path))


def read_toml(path: Path, name: str) -> TomlFile | Problem:
    """Reads one file; `name` is what messages call it."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        return _problem(name, f"cannot be read: {error.strerror or error}")
    if len(content) > MAX_BYTES:
        return _problem(name, "is larger than 1 MiB, and so no manifest")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _problem(name, f"is not UTF-8: byte 0x{content[error.start]:02x}", line)
    if text.startswith("\ufeff"):
        return _problem(name, "begins with a byte order mark; save it as UTF-8 without one", 1)
    return _parsed(text, name)


def _parsed(text: str, name: str) -> TomlFile | Problem:
    try:
        table = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        return _problem(name, f"is not valid TOML: {message}", error.lineno)
    except RecursionError:
        return _problem(name, "is not valid TOML: it is nested too deeply")
    except ValueError:  # Python's own limit on the digits of a number
        return _problem(name, "is not valid TOML: a number has too many digits")
    return TomlFile(name=name, table=table, lines=find_key_lines(text))


def _problem(name: str, message: str, line: int | None = None) -> Problem:
    return Problem(message=message, location=Location(file=name, line=line))
