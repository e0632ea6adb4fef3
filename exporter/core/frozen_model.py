"""The base classes of all values in files and messages between processes.

`FrozenModel.model_validate_json` reads a value and `to_json` writes it. Reading fails if a key is
unknown, so a file of another version is detected.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType, override

T = TypeVar("T")

#: A sequence in a file (TOML array, JSON list) as a tuple. Its items are validated strictly.
Items = Annotated[tuple[T, ...], Field(strict=False)]

#: The values that TOML and JSON share, used by `init` and `options`.
#: (A named alias, because pydantic does not support an unnamed recursive one.)
Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | dict[str, Plain] | None")


class FrozenModel(BaseModel):
    """A frozen value; equality compares the content."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        ser_json_inf_nan="constants",
        # pydantic reserves the prefix `model_`; records have a field `model`.
        protected_namespaces=(),
    )

    @classmethod
    def from_fields(cls, source: object, **others: Any) -> Self:
        """Return a value with the fields of the same names of `source`, and with the others."""
        names = (name for name in cls.model_fields if name not in others)
        return cls(
            **{name: getattr(source, name) for name in names if hasattr(source, name)}, **others
        )

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

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the value that `to_json` wrote as these bytes.

        Raises:
            ValueError: if the bytes were changed, or have another format.
        """
        view = memoryview(data)  # results of many cells are large, so copy them only once
        head, rest = view[:_HEAD_LENGTH], view[_HEAD_LENGTH:]
        digest = hashlib.sha256(rest).hexdigest()
        if head != f"{_BEFORE_DIGEST}{digest}{_AFTER_DIGEST}".encode():
            raise ValueError("changed since it was written")
        return cls.model_validate_json(b"".join((b"{", rest)))


_BEFORE_DIGEST, _AFTER_DIGEST = '{\n  "sha256": "', '",'
_HEAD_LENGTH = len(_BEFORE_DIGEST) + 64 + len(_AFTER_DIGEST)
