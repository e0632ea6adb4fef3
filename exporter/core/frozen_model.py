"""The base classes of all values in files and messages between processes.

`read` returns the value that `to_json` wrote. It fails if a key is unknown, so a file of another
version is detected.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType, override

from exporter.core.files import read_regular_file

T = TypeVar("T")

#: A sequence in a file (TOML array, JSON list) as a tuple. Its items are validated strictly.
Items = Annotated[tuple[T, ...], Field(strict=False)]

#: A measured number, which may be infinite or NaN. All other floats are finite.
Measured = Annotated[float, Field(allow_inf_nan=True)]

#: The values that TOML and JSON share, used by `init` and `options`.
#: (A named alias, because pydantic does not support an unnamed recursive one.)
Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | dict[str, Plain] | None")


#: The sets of given fields of all values. A frozen value never changes its own.
_GIVEN_FIELDS: dict[frozenset[str], set[str]] = {}


class FrozenModel(BaseModel):
    """A frozen value; equality compares the content."""

    model_config = ConfigDict(
        frozen=True,
        # A command uses a tenth of the classes.
        defer_build=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        # pydantic reserves the prefix `model_`; records have a field `model`.
        protected_namespaces=(),
    )

    @classmethod
    def read(cls, data: bytes | bytearray) -> Self:
        """Return the value that `to_json` wrote as these bytes.

        Raises:
            ValueError: if the bytes have another format.
        """
        return cls.model_validate_json(data)

    @classmethod
    def find(cls, path: Path, limit: int) -> Self | None:
        """Return the value of a file, or None if it cannot be read; see `read_regular_file`."""
        try:
            return cls.read(read_regular_file(path, limit))
        except (OSError, ValueError):
            return None

    @classmethod
    def from_fields(cls, source: object, **others: Any) -> Self:
        """Return a value with the fields of the same names of `source`, and with the others."""
        # pydantic is slow to find that an attribute is missing.
        known, kind = getattr(source, "__dict__", {}), type(source)
        names = (name for name in cls.model_fields if name in known or hasattr(kind, name))
        return cls(
            **{name: getattr(source, name) for name in names if name not in others}, **others
        )

    def list_explicit(self) -> dict[str, Any]:
        """Return the keys that the user wrote with their values, in the order of the fields."""
        explicit = self.model_fields_set
        return {key: getattr(self, key) for key in type(self).model_fields if key in explicit}

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Share the set of given fields, which is a quarter of the memory of 20,000 records."""
        given = self.__pydantic_fields_set__
        shared = _GIVEN_FIELDS.setdefault(frozenset(given), given)
        object.__setattr__(self, "__pydantic_fields_set__", shared)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON: fields in their declared order, one trailing newline."""
        return self.model_dump_json(indent=indent) + "\n"


class ChecksummedModel(FrozenModel):
    """A value stored with a digest of its JSON.

    The digest detects corruption and edits. It does not prevent tampering.
    """

    @override
    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON that begins with the digest of the rest."""
        rest = super().to_json(indent=indent)[1:]
        return f"{_BEFORE_DIGEST}{hashlib.sha256(rest.encode()).hexdigest()}{_AFTER_DIGEST}{rest}"

    @override
    @classmethod
    def read(cls, data: bytes | bytearray) -> Self:
        """Return the value that `to_json` wrote as these bytes. An array of bytes loses its head.

        Raises:
            ValueError: if the bytes were changed, or have another format.
        """
        # Results of many cells are large, so an array is parsed without a copy.
        content = data if isinstance(data, bytearray) else bytearray(data)
        with memoryview(content) as view:
            digest = hashlib.sha256(view[_HEAD_LENGTH:]).hexdigest()
        if content[:_HEAD_LENGTH] != f"{_BEFORE_DIGEST}{digest}{_AFTER_DIGEST}".encode():
            raise ValueError("changed since it was written")
        content[:_HEAD_LENGTH] = b"{"
        return cls.parse(content)

    @classmethod
    def parse(cls, content: bytearray) -> Self:
        """Return the value of JSON that `to_json` wrote, without its digest.

        Raises:
            ValidationError: if it has another format.
        """
        return cls.model_validate_json(content)


_BEFORE_DIGEST, _AFTER_DIGEST = '{\n  "sha256": "', '",'
_HEAD_LENGTH = len(_BEFORE_DIGEST) + 64 + len(_AFTER_DIGEST)
