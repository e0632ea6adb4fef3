"""What pydantic found in, our words for it out: (key path, message) pairs.

pydantic says that "extra inputs are not permitted"; a person needs to know which key was meant, or
that the key exists in the format and not yet in this version.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from exporter.core.errors import suggest_nearest
from exporter.manifest.schema.fields import FORM_TAGS, NestedProblem
from exporter.manifest.schema.tables import BoundTable, Table, ToleranceTable
from exporter.manifest.syntax.message_format import KeyPath, format_value, join_words

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "an int",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "text",
    "tuple_type": "a list",
}


def format_errors(error: ValidationError, table: type[Table]) -> Iterator[tuple[KeyPath, str]]:
    """The problems of one table, each with its path inside the table."""
    for detail in error.errors(include_url=False):
        path = tuple(step for step in detail["loc"] if step not in FORM_TAGS)
        cause = detail.get("ctx", {}).get("error")
        if detail["type"] == "missing":
            yield path[:-1], format_missing_key(str(path[-1]), _table_at(table, path[:-1]) or table)
        elif isinstance(cause, NestedProblem):
            yield (*path, *cause.path), str(cause)
        elif not _follows_from_another(detail):
            yield path, _message(detail, path, table)


def format_unknown_key(key: str, table: type[Table]) -> str:
    """What to say of a key that `table` does not take."""
    if key in table.unsupported_keys:
        return "is not supported yet"
    if key in table.misplaced_keys:
        return f"is not set here: {table.misplaced_keys[key]}"
    return f"unknown key{suggest_nearest(key, table.model_fields)}"


def format_missing_key(key: str, table: type[Table]) -> str:
    """What to say of a key that `table` lacks."""
    return table.missing_messages.get(key, f"needs the key '{key}'")


def _message(detail: ErrorDetails, path: KeyPath, table: type[Table]) -> str:
    value, kind, about = detail["input"], detail["type"], detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return format_unknown_key(str(path[-1]), _table_at(table, path[:-1]) or table)
        case "literal_error":
            return _no_choice(value, _choices(table, path) or about["expected"])
        case "too_short" | "too_long":
            return _wrong_length(value, about)
        case "value_error":
            return str(about["error"])
        case "model_type" if _table_at(table, path[:-1]) is ToleranceTable:
            return _no_bound(str(path[-1]), value)
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**about)}, got {format_value(value)}"
    # Our own kinds say what was expected; pydantic's rarer ones serve, but for the capital.
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {format_value(value)}"


def _no_bound(key: str, value: object) -> str:
    """In a table of tolerances every key that is not its own names a dtype or a device."""
    if near := suggest_nearest(key, BoundTable.model_fields):
        return f"unknown key{near}"
    return f"expected a table for a dtype or a device, got {format_value(value)}"


def _follows_from_another(detail: ErrorDetails) -> bool:
    """Only good items are counted: a list of bad ones is too short besides."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _wrong_length(value: Any, about: dict[str, Any]) -> str:
    if about.get("min_length") == 1:
        return "needs at least one item"
    return f"expected 2 numbers, got {len(value)}"


def _choices(table: type[Table], path: KeyPath) -> tuple[str, ...]:
    """What a Literal allows, found in the field: pydantic has it as prose only."""
    *parents, key = path
    owner = _table_at(table, tuple(parents))
    field = owner.model_fields.get(str(key)) if owner else None
    found = _alternatives(field.annotation) if field else ()
    return tuple(word for each in found for word in get_args(each) if isinstance(word, str))


def _no_choice(value: object, choices: tuple[str, ...] | str) -> str:
    if isinstance(choices, str):
        return f"expected {choices}, got {format_value(value)}"
    hint = suggest_nearest(value, choices) if isinstance(value, str) else ""
    known = join_words((f"'{word}'" for word in choices), "or")
    return f"expected {known}, got {format_value(value)}{hint}"


def _table_at(table: type[Table], path: KeyPath) -> type[Table] | None:
    """The class of the table that stands at `path`."""
    found: list[Any] = [table]
    for step in path:
        found = [inner for each in found for inner in _below(each, step)]
    tables = (each for each in found if isinstance(each, type) and issubclass(each, Table))
    return next(tables, None)


def _below(annotation: Any, step: int | str) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        field = annotation.model_fields.get(str(step))
        if field:
            yield from _alternatives(field.annotation)
        elif annotation is ToleranceTable:
            yield BoundTable
    elif get_origin(annotation) is tuple and isinstance(step, int):
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) is dict and isinstance(step, str):
        yield from _alternatives(get_args(annotation)[1])


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, without what `Annotated` adds."""
    match get_origin(annotation):
        case origin if origin is Annotated:
            yield from _alternatives(get_args(annotation)[0])
        case origin if origin in (Union, UnionType):
            for member in get_args(annotation):
                yield from _alternatives(member)
        case _:
            yield annotation
