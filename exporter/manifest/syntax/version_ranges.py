"""Ranges of versions: `<2.14`, `>=2.12, <2.14`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator

from exporter.manifest.syntax.message_format import unexpected_value

_COMPARISON = re.compile(r"(<=|>=|<|>|==|!=)\s*(\d+(?:\.\d+)*)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_Release = tuple[int, ...]
_OPERATORS: dict[str, Callable[[_Release, _Release], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def check_version_range(value: str) -> str:
    """Return the range without spaces.

    Raises:
        ValueError: If it cannot be parsed.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(_COMPARISON.fullmatch(part) for part in parts):
        raise unexpected_value('comparisons of versions such as "<2.14" or ">=2.12, <2.14"', value)
    return ",".join("".join(part.split()) for part in parts)


def is_in_range(version: str, versions: str) -> bool:
    """Return whether a version is in a range of `check_version_range`.

    The version has as many parts as each bound: `2.13.1` is equal to `2.13` and not above it.

    Returns:
        True for an empty range. False if the version is unknown.
    """
    if not versions:
        return True
    release = _RELEASE.match(version)
    if release is None:
        return False
    return all(
        _OPERATORS[sign](_cut(_parse(release[0]), len(bound)), bound)
        for sign, bound in _list_bounds(versions)
    )


def _list_bounds(versions: str) -> Iterator[tuple[str, _Release]]:
    for match in _COMPARISON.finditer(versions):
        yield match[1], _parse(match[2])


def _parse(text: str) -> _Release:
    return tuple(int(part) for part in text.split("."))


def _cut(release: _Release, length: int) -> _Release:
    return (*release, *(0 for _ in range(length)))[:length]
