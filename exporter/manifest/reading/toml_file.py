"""Read a TOML file with the line of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.core.errors import Location, Problem
from exporter.core.toml_table import read_toml_table
from exporter.manifest.reading.toml_lines import find_key_lines, find_nearest_line
from exporter.manifest.syntax.message_format import KeyPath, format_key


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A file that tomli accepts."""

    name: str
    """Relative to the project's root, with forward slashes."""
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def build_problem(self, path: KeyPath, message: str) -> Problem:
        """Return a problem at a key of this file, or at its parent if the key does not exist."""
        line = find_nearest_line(self.lines, path)
        location = Location(file=self.name, line=line if path else None)
        return Problem(message=message, location=location, key=format_key(path))


def read_toml(path: Path, name: str) -> TomlFile | Problem:
    """Read one file; return the problem if it cannot be read.

    Args:
        path: The file.
        name: Its name in messages.
    """
    content = read_toml_table(path)
    if content.problem:
        location = Location(file=name, line=content.line)
        return Problem(message=content.problem, location=location, excerpt=content.excerpt)
    return TomlFile(name=name, table=content.table, lines=find_key_lines(content.text))
