"""Invalid and deprecated keys of a table: the messages for their places."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from exporter.core.errors import suggest_nearest
from exporter.manifest.resolved.model import Bound
from exporter.manifest.schema.tables import ToleranceTable
from exporter.manifest.syntax.fields import FORM_TAGS, NestedProblem
from exporter.manifest.syntax.table import Table, read_keys
from exporter.manifest.syntax.toml_file import TomlFile
from exporter.manifest.syntax.values import KeyPath, format_value

#: Values of required keys for messages.
EXAMPLES = {
    "format": "1",
    "inputs": '[{ name = "x", shape = ["batch", 4] }]',
    "opsets": "[17, 18]",
    "outputs": '[{ name = "y", shape = ["batch", 3] }]',
    "reason": '"why it is accepted"',
    "requirements": '["onnxruntime==1.20.*"]',
    "runtime": '"onnxruntime"',
    "shape": '["batch", 4]',
    "source": '"net.py:Net"',
}
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "an integer",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "text",
    "tuple_type": "a list",
}


def format_errors(error: ValidationError, table: type[Table]) -> Iterator[tuple[KeyPath, str]]:
    """Return the path inside the table and the message of each problem."""
    for detail in error.errors(include_url=False):
        path = tuple(step for step in detail["loc"] if step not in FORM_TAGS)
        cause = detail.get("ctx", {}).get("error")
        if detail["type"] == "missing":
            key = str(path[-1])
            fix = f"`{key} = {EXAMPLES[key]}`" if key in EXAMPLES else "it"
            suffix = " as the first line" if key == "format" else ""
            yield path[:-1], f"needs the key '{key}'; add {fix}{suffix}"
        elif isinstance(cause, NestedProblem):
            yield (*path, *cause.path), str(cause)
        elif detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            pass  # pydantic counts only valid items, and reports the invalid ones as well
        else:
            yield path, _format_message(detail, path, table)


def _format_message(detail: ErrorDetails, key_path: KeyPath, table: type[Table]) -> str:
    value = detail["input"]
    kind = detail["type"]
    context = detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            key, owner = str(key_path[-1]), _find_table(table, key_path[:-1]) or table
            text = f"unknown key{suggest_nearest(key, owner.model_fields)}"
            if key in owner.misplaced_keys:
                text = f"is not valid here; {owner.misplaced_keys[key]}"
            return text
        case "literal_error":
            choices = re.findall("'([^']+)'", context["expected"])
            hint = suggest_nearest(value, choices) if isinstance(value, str) else ""
            return f"expected {context['expected']}, got {format_value(value)}{hint}"
        case "too_short" | "too_long":
            if context.get("min_length") == 1:
                return "expected at least one item, got an empty list"
            return f"expected 2 numbers, got {len(value)}"
        case "value_error":
            return str(context["error"])
        case "model_type" if _find_table(table, key_path[:-1]) is ToleranceTable:
            # A key of a tolerance that is not one of its own is a dtype or a device.
            hint = suggest_nearest(str(key_path[-1]), Bound.model_fields)
            expected = f"expected a table for a dtype or a device, got {format_value(value)}"
            return f"unknown key{hint}" if hint else expected
    if kind in _EXPECTED:
        is_bound = key_path[-1:] == ("tolerance",) and isinstance(value, int | float)
        fix = f"; write {{ atol = {value} }}" if is_bound else ""
        return f"expected {_EXPECTED[kind].format(**context)}, got {format_value(value)}{fix}"
    # The project's own errors contain the expected form; pydantic's rare ones are used as they are.
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {format_value(value)}"


def _find_table(table: type[Table], key_path: KeyPath) -> type[Table] | None:
    """Return the class of the table at `path`, or None if there is no table."""
    annotations: list[Any] = [table]
    for step in key_path:
        annotations = [inner for each in annotations for inner in _list_inner(each, step)]
    tables = (each for each in annotations if isinstance(each, type) and issubclass(each, Table))
    return next(tables, None)


def _list_inner(annotation: Any, step: int | str) -> Iterator[Any]:
    """Return the types of the value at `step` of a value with this annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        field = annotation.model_fields.get(str(step))
        if field:
            yield from _list_members(field.annotation)
        elif annotation is ToleranceTable:
            yield Bound
    elif get_origin(annotation) is tuple and isinstance(step, int):
        yield from _list_members(get_args(annotation)[0])
    elif get_origin(annotation) is dict and isinstance(step, str):
        yield from _list_members(get_args(annotation)[1])


def _list_members(annotation: Any) -> Iterator[Any]:
    """Return the members of a union, without the metadata of `Annotated`."""
    match get_origin(annotation):
        case origin if origin is Annotated:
            yield from _list_members(get_args(annotation)[0])
        case origin if origin in (Union, UnionType):
            for member in get_args(annotation):
                yield from _list_members(member)
        case _:
            yield annotation


def warn_of_deprecated_keys(
    table: type[Table], file: TomlFile, start: KeyPath, raw: Any, key_path: KeyPath = ()
) -> None:
    """Warn of the deprecated keys below `path` of the table, as Python itself warns."""
    keys = read_keys(owner) if (owner := _find_table(table, key_path)) else {}
    items = raw.items() if isinstance(raw, dict) else enumerate(raw if type(raw) is list else ())
    for key, value in items:
        inner = (*key_path, key)
        if isinstance(key, str) and key in keys and (ending := keys[key].deprecated):
            text = f"version {ending[0]} removes this key; use {ending[1]}"
            problem = file.build_problem((*start, *inner), text)
            line = problem.location and problem.location.line
            text = f"{problem.key}: {text}"
            warnings.warn_explicit(text, FutureWarning, file.name, line or 1)
        warn_of_deprecated_keys(table, file, start, value, inner)
