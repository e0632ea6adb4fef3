"""The types of the store's settings in `[tool.exporter]`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from exporter.core.errors import suggest_nearest
from exporter.manifest.resolved.store import REMOTE_SCHEMES, is_remote, split_url
from exporter.manifest.schema.fields import Line
from exporter.manifest.syntax.message_format import quote, unexpected_value

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


def check_store(value: str) -> str:
    """Return the value of `store` if it is a folder or a URL.

    Raises:
        ValueError: if it is neither.
    """
    return _check_url(value) if is_remote(value) else _check_folder(value)


def _check_url(value: str) -> str:
    scheme, rest = split_url(value)
    if scheme not in REMOTE_SCHEMES:
        schemes = ", ".join(f"{each}://" for each in REMOTE_SCHEMES)
        nearest = suggest_nearest(scheme, REMOTE_SCHEMES)
        message = f"{quote(value)} has the unknown scheme {quote(scheme)}; possible are {schemes}"
        raise ValueError(f"{message}{nearest}")
    host, *parts = rest.rstrip("/").split("/")
    if "@" in host:
        message = "the URL contains a user or a password; use the settings of the package"
        raise ValueError(f"{message}, such as environment variables")
    is_local = scheme == "file"
    if bool(host) == is_local or not all(parts) or ".." in parts or re.search(r"[?#\\]", rest):
        form = "file:///srv/store" if is_local else f"{scheme}://bucket/prefix"
        raise unexpected_value(f'a URL such as "{form}"', value)
    return value.rstrip("/")


def _check_folder(value: str) -> str:
    parts = value.removeprefix("/").removeprefix("~/").split("/")
    if not all(parts) or "." in parts or parts[0].startswith("~") or re.search(r"[\\:]", value):
        raise unexpected_value(
            'a folder such as "~/.cache/exporter" or "../store", a URL such as '
            '"s3://bucket/prefix", or "off"',
            value,
        )
    return value


Age = Annotated[
    float,
    PlainValidator(_parse_age),
    WithJsonSchema({"type": "string", "examples": ["12h", "30d", "8w"]}),
]
StorePlace = Annotated[Line, AfterValidator(check_store)]
