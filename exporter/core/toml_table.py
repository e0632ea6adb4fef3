"""Read a TOML file and the settings of a project in `pyproject.toml`."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli

from exporter.core import toml_errors
from exporter.core.files import leads_out_of_checkout, read_regular_file

T = TypeVar("T")

#: The file and the keys of the project's settings.
SETTINGS_FILE = "pyproject.toml"
SETTINGS_KEYS = ("tool", "exporter")
#: A larger file is not a manifest; parsing it would take minutes.
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """The content of a TOML file, or the problem with it."""

    text: str = ""
    table: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why the file cannot be read; empty if it can."""
    line: int | None = None
    """The line of the problem."""
    excerpt: str = ""
    """The content of the line, with a caret below the column of the problem."""


def read_toml_table(path: Path) -> TomlTable:
    """Read a TOML file; report a problem as a value."""
    try:
        content = _read(path)
    except OSError as error:
        if error.errno == errno.EFBIG:
            return TomlTable(problem="is larger than 1 MiB; a manifest must be smaller")
        return TomlTable(problem=f"cannot be read: {error.strerror or error}")
    return read_toml_text(content)


def read_toml_text(content: bytes | str) -> TomlTable:
    """Parse the content of a TOML file; report a problem as a value."""
    if isinstance(content, str):
        content = content.encode()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return TomlTable(problem=f"is not UTF-8: byte 0x{content[error.start]:02x}", line=line)
    if text.startswith("\ufeff"):
        problem = "begins with a byte order mark; save it as UTF-8 without one"
        return TomlTable(problem=problem, line=1)
    try:
        return TomlTable(text=text, table=tomli.loads(text))
    except tomli.TOMLDecodeError as error:
        message = toml_errors.explain_syntax_error(text, error)
        return TomlTable(
            problem=f"is not valid TOML at column {error.colno}: {message}",
            line=error.lineno,
            excerpt=toml_errors.draw_excerpt(text, error.lineno, error.colno),
        )
    except RecursionError:
        return TomlTable(problem="is not valid TOML: it is nested too deeply")
    except ValueError:  # Python limits the digits of a number
        return TomlTable(problem="is not valid TOML: a number has too many digits")


def _read(path: Path) -> bytes:
    """Return the content of a TOML file.

    Raises:
        OSError: if it cannot be read, or if it is a link to a file that is none of the repository:
            an excerpt in a log would show a line of that file.
    """
    target = Path(os.path.realpath(path))
    if target != path.absolute():
        is_other = path.is_symlink() and target.suffix != path.suffix
        if is_other or leads_out_of_checkout(path):
            text = "is a symlink to a file that is no TOML file of the repository; copy the file"
            raise OSError(errno.EINVAL, text, str(path))
    return read_regular_file(path, _MAX_BYTES, may_be_link=True)


def find_settings(document: Mapping[str, Any]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Find `[tool.exporter]` in the content of a `pyproject.toml`.

    Returns:
        The table, or None if it does not exist; and the keys of a value that should be a table
        and is not, empty if all are tables.
    """
    table: object = document
    for end, key in enumerate(SETTINGS_KEYS, 1):
        if not isinstance(table, dict) or key not in table:
            return None, ()
        table = table[key]
        if not isinstance(table, dict):
            return None, SETTINGS_KEYS[:end]
    return (table, ()) if isinstance(table, dict) else (None, ())


def find_root(folder: Path = Path()) -> Path:
    """Return the nearest folder upwards with a project, within its repository, or the folder."""
    with suppress(OSError):  # such as a current folder that was removed
        for each in (folder, *folder.absolute().parents):
            has_settings = False
            with suppress(OSError):
                has_settings = b"tool.exporter" in _read(each / SETTINGS_FILE)
            if has_settings or any((each / "manifests").glob("*.toml")):
                return each
            if (each / ".git").exists():
                break
    return folder


def read_setting(root: Path, key: str, default: T) -> T:
    """Return a value of `[tool.exporter]`, or the default if it has another type or is missing.

    For messages, and for processes that start before the settings are validated.
    """
    settings = find_settings(read_toml_table(root / SETTINGS_FILE).table)[0] or {}
    value = settings.get(key)
    return value if isinstance(value, type(default)) else default
