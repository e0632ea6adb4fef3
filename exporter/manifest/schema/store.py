"""What `[tool.exporter]` says of the store: where it is, and how much and how long it keeps.

In: texts as users write them. Out: the types of the fields, and what holds without them.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from exporter.manifest.schema.fields import Line
from exporter.manifest.syntax.message_format import unexpected_value

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


#: For ever, to a person.
_MOST_DAYS = 36_500


def _age(value: object) -> float:
    """Seconds."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d{1,6}) ?([hdw])", value, re.ASCII)
        if found and 0 < (days := int(found[1]) * _DAYS[found[2]]) <= _MOST_DAYS:
            return days * 24 * 3600
    raise unexpected_value('an age such as "12h", "30d" or "8w"', value)


def _folder(value: str) -> str:
    parts = value.removeprefix("/").removeprefix("~/").split("/")
    if not all(parts) or "." in parts or parts[0].startswith("~") or re.search(r"[\\:]", value):
        raise unexpected_value(
            'a folder such as "~/.cache/exporter" or "../store", or "off"', value
        )
    return value


Age = Annotated[
    float,
    PlainValidator(_age),
    WithJsonSchema({"type": "string", "examples": ["12h", "30d", "8w"]}),
]


StoreFolder = Annotated[Line, AfterValidator(_folder)]
