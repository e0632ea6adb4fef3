"""The base of every value that crosses a file or a process: frozen, strict, closed.

In: nothing. Out: `Value`, and the aliases for tuples and tables that fields use.

Values are read with `Value.model_validate_json` and written with `to_json`; both ends refuse a key
that they do not know, so that a file of another version is noticed and not half understood.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

T = TypeVar("T")

#: A sequence in a file (TOML array, JSON list) held as a tuple. Items stay strict.
Items = Annotated[tuple[T, ...], Field(strict=False)]

#: What TOML and JSON share: the values of `init` and `options`.
#: (A named alias: pydantic cannot follow an unnamed one that holds itself.)
Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | dict[str, Plain] | None")


class Value(BaseModel):
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
