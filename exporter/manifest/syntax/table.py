"""The base class of every table of a manifest, and the meaning of its keys.

A key is declared once: `name: Annotated[TYPE, Key(...)] = DEFAULT`, with its text below. Loader,
fingerprint, recheck, gate, pages, reference and JSON Schema derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from exporter.core.frozen_model import FrozenModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The meaning of a key. A key that does not declare it has the strictest one."""

    affects: Literal["file", "check", "nothing"] = "file"
    """The part of a result that is stale after a change."""
    gate: Literal["promise", "definition", "cell", "nothing"] = "promise"
    """`definition`: another value is another model; `cell`: the gate compares its effect on each
    cell instead."""
    is_as_strict: Callable[[Any, Any], object] | None = None
    """Whether the second value promises as much as the first. Without it: if it is equal."""
    shown: Callable[[Any], str] | bool = True
    """The text of the value on the model's page; `True`: the notation of manifests."""
    needs_model: bool = False
    """Whether its check needs the loaded model, so the file cannot be checked alone."""
    deprecated: tuple[str, str] | None = None
    """The version that removes the key, and its replacement; a manifest with it has a warning."""


#: Keys that describe an entry or limit its job.
DESCRIPTION = Key(affects="nothing", gate="nothing", shown=False)
#: Keys of which another value is another model or export.
DEFINITION = Key(gate="definition")


def is_at_most(old: Any, new: Any) -> bool:
    return new is not None and (old is None or new <= old)


def is_implied(old: Any, new: Any) -> bool:
    """Return whether there was no promise, or the new one implies it."""
    return old is None or (new is not None and new.implies(old))


class Table(FrozenModel):
    """A table of the manifest."""

    #: Keys that belong to another place, with the advice for each.
    misplaced_keys: ClassVar[Mapping[str, str]] = {}


@cache
def read_keys(table: type[FrozenModel]) -> Mapping[str, Key]:
    """Return the meaning of each key of a table, in the order of its fields."""
    return {
        name: next((each for each in field.metadata if isinstance(each, Key)), Key())
        for name, field in table.model_fields.items()
    }


@cache
def read_defaults(table: type[FrozenModel]) -> Mapping[str, Any]:
    """Return the default of each key that has one; no reader changes it."""
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in table.model_fields.items()
        if not field.is_required()
    }


@cache
def select_keys(table: type[FrozenModel], **meaning: object) -> frozenset[str]:
    """Return the keys with these properties."""
    return frozenset(
        name
        for name, key in read_keys(table).items()
        if all(getattr(key, property) == value for property, value in meaning.items())
    )


#: The mark of a text that names a function of the project, or of a dict with such texts:
#: `Annotated[Line, FUNCTION]`.
FUNCTION = "function"
_WITH_ITEMS = (FrozenModel, tuple, dict)


def list_functions(value: object) -> Iterator[str]:
    """Yield each function of the project that a value names."""
    if isinstance(value, FrozenModel):
        for name, field in type(value).model_fields.items():
            item = getattr(value, name)
            if item and FUNCTION in field.metadata:
                values = item.values() if isinstance(item, dict) else (item,)
                yield from (each for each in values if isinstance(each, str))
            elif isinstance(item, _WITH_ITEMS):
                yield from list_functions(item)
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from list_functions(item)


_NOTATION = (AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema)
_Table = TypeVar("_Table", bound=FrozenModel)


def without_notation(table: type[_Table]) -> type[_Table]:
    """Let the inherited keys of a class take values: only manifests have their notation."""
    for name, field in table.model_fields.items():
        if name not in table.__annotations__:
            field.metadata = [each for each in field.metadata if not isinstance(each, _NOTATION)]
            field.annotation = _drop_notation(field.annotation)
    return table


def _drop_notation(annotation: Any) -> Any:
    match get_origin(annotation):
        case origin if origin is Annotated:
            inner, *metadata = get_args(annotation)
            others = [each for each in metadata if not isinstance(each, _NOTATION)]
            return reduce(lambda type, each: Annotated[type, each], others, _drop_notation(inner))
        case origin if origin in (Union, UnionType):
            return reduce(or_, map(_drop_notation, get_args(annotation)))
        case origin if origin in (dict, tuple):
            return origin[tuple(map(_drop_notation, get_args(annotation)))]
    return annotation
