"""Consumers of a file: `onnxruntime>=1.17`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from exporter.core.onnxruntime_releases import Release, find_limits
from exporter.manifest.syntax.message_format import unexpected_value

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
