"""How `parameters` is written: names of the weights in the file.

In: what tomli read. Out: the type of the field in `entry.py`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, Tag

from exporter.core.frozen_model import Items
from exporter.manifest.schema.fields import Line, Name, discriminate_form
from exporter.manifest.syntax.message_format import unexpected_value

#: Where the number of a weight goes in its name.
NUMBER_PLACEHOLDER = "{}"


def _numbered(value: str) -> str:
    if NUMBER_PLACEHOLDER not in value:
        raise unexpected_value(
            f'a name with "{NUMBER_PLACEHOLDER}" for the number, such as "learned_{NUMBER_PLACEHOLDER}"',
            value,
        )
    return value


_Numbered = Annotated[Name, AfterValidator(_numbered)]
_Names = Annotated[Items[Name], Field(min_length=1)]
_Patterns = Annotated[dict[Line, Name], Field(min_length=1)]
ParametersField = Annotated[
    Annotated[_Numbered, Tag("<text>")]
    | Annotated[_Names, Tag("<list>")]
    | Annotated[_Patterns, Tag("<table>")],
    discriminate_form("expected a name with a number, a list of names or a table of names"),
]
