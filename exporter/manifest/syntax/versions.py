"""Versions of packages: requirements of pip, ranges of torch, and releases of ONNX Runtime."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator

from exporter.core.onnxruntime_releases import Release, find_limits
from exporter.manifest.syntax.values import unexpected_value

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"({_NAME})\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\)?|@\s*\S+)?\s*(?:;.+)?"
)


def check_requirement(value: str) -> str:
    """Return the requirement; options and paths of pip are none.

    Raises:
        ValueError: If it cannot be parsed.
    """
    if not _REQUIREMENT.fullmatch(value):
        raise unexpected_value('a requirement such as "onnxruntime==1.17.3" or "numpy<2"', value)
    return value


def find_requirement_name(requirement: str) -> str:
    """Return the normalized name of the package."""
    match = re.match(_NAME, requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


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


_CONSUMER = re.compile(r"onnxruntime ?>= ?(\d{1,3})\.(\d{1,3})(\.\d{1,3})?", re.ASCII)
#: A requirement of an environment that selects one release.
_PINNED = re.compile(
    r"onnxruntime(?:-gpu)?\s*(?:===?|~=(?=\s*\d+\.\d+\.\d))\s*(\d{1,3})\.(\d{1,3})(?!\d)"
)


def check_consumer(value: str) -> str:
    """Return the text of a consumer.

    Raises:
        ValueError: If it has another form, or names a release without known limits.
    """
    match = _CONSUMER.fullmatch(value)
    if match is None:
        raise unexpected_value('a release of ONNX Runtime such as "onnxruntime>=1.17"', value)
    if find_limits((int(match[1]), int(match[2]))) is None:
        raise unexpected_value("a release of ONNX Runtime from 0.1 on", value)
    return value


def find_lowest_release(consumers: Iterable[str]) -> Release | None:
    """Return the lowest of the promised releases, or None if there is none."""
    matches = (_CONSUMER.fullmatch(text) for text in consumers)
    return min(((int(match[1]), int(match[2])) for match in matches if match), default=None)


def find_pinned_release(requirements: Iterable[str]) -> Release | None:
    """Return the release of ONNX Runtime that the requirements select, or None."""
    matches = (_PINNED.match(text.strip()) for text in requirements)
    return next(((int(match[1]), int(match[2])) for match in matches if match), None)
