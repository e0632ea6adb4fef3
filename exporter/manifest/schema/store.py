"""The types of the store's settings in `[tool.exporter]`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from exporter.manifest.schema.fields import Line
from exporter.manifest.syntax.message_format import unexpected_value

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}
#: A hundred years, the upper limit of an age.
_MAX_DAYS = 36_500


def _parse_age(value: object) -> float:
    """Return seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,6}) ?([hdw])", value, re.ASCII)
        if match and 0 < (days := int(match[1]) * _DAYS[match[2]]) <= _MAX_DAYS:
            return days * 24 * 3600
    raise unexpected_value('an age such as "12h", "30d" or "8w"', value)


def _check_folder(value: str) -> str:
    parts = value.removeprefix("/").removeprefix("~/").split("/")
    if not all(parts) or "." in parts or parts[0].startswith("~") or re.search(r"[\\:]", value):
        raise unexpected_value(
            'a folder such as "~/.cache/exporter" or "../store", or "off"', value
        )
    return value


Age = Annotated[
    float,
    PlainValidator(_parse_age),
    WithJsonSchema({"type": "string", "examples": ["12h", "30d", "8w"]}),
]
StoreFolder = Annotated[Line, AfterValidator(_check_folder)]
