"""Requirements of packages as pip reads them: `onnxruntime==1.17.3`, `numpy<2`."""

from __future__ import annotations

import re

from exporter.manifest.syntax.message_format import unexpected_value

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
