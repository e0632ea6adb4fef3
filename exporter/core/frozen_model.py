"""The base of every value that crosses a file or a process: frozen, strict, closed.

In: nothing. Out: `FrozenModel`, `ChecksummedModel`, and the aliases for tuples and tables that fields use.

Values are read with `FrozenModel.model_validate_json` and written with `to_json`; both ends refuse a key
that they do not know, so that a file of another version is noticed and not half understood.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType, override

T = TypeVar("T")

#: A sequence in a file (TOML array, JSON list) held as a tuple. Items stay strict.
Items = Annotated[tuple[T, ...], Field(strict=False)]

#: What TOML and JSON share: the values of `init` and `options`.
#: (A named alias: pydantic cannot follow an unnamed one that holds itself.)
Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | dict[str, Plain] | None")


class FrozenModel(BaseModel):
    """A frozen value; equality is by content."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        ser_json_inf_nan="constants",
        # `model` is this field's own word: a record names its model.
        protected_namespaces=(),
    )

    def to_json(self, *, indent: int | None = 2) -> str:
        """Canonical JSON: fields in their declared order, one trailing newline."""
        return self.model_dump_json(indent=indent) + "\n"


class ChecksummedModel(FrozenModel):
    """A value whose file begins with a digest of the rest, so that a change of it is noticed.

    That is no signature: who knows how can seal what he likes. A flipped bit cannot, and neither
    does an editor.
    """

    @override
    def to_json(self, *, indent: int | None = 2) -> str:
        """Canonical JSON, sealed."""
        rest = super().to_json(indent=indent)[1:]
        return f"{_SEAL}{hashlib.sha256(rest.encode()).hexdigest()}{_SEALED}{rest}"

    @classmethod
    def read(cls, data: bytes) -> Self:
        """The value of which `to_json` gave these bytes.

        Raises:
            ValueError: where it did not, or where this version knows another form.
        """
        whole = memoryview(data)  # results of many cells are large: they are copied once
        seal, rest = whole[:_LENGTH], whole[_LENGTH:]
        if seal != f"{_SEAL}{hashlib.sha256(rest).hexdigest()}{_SEALED}".encode():
            raise ValueError("changed since it was written")
        return cls.model_validate_json(b"".join((b"{", rest)))


_SEAL, _SEALED = '{\n  "sha256": "', '",'
_LENGTH = len(_SEAL) + 64 + len(_SEALED)
