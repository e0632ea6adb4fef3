"""The JSON Schema of a manifest file, from the classes that validate it.

Editors complete and check manifests with it: `#:schema ../docs/manifest.schema.json` as first line.
It holds every rule that concerns one key; `resolve.py` has those that concern several.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

from exporter.manifest.schema import (
    containers as call_tables,
)
from exporter.manifest.schema import (
    entry,
    settings,
    tables,
)
from exporter.manifest.schema import (
    overrides as override_table,
)
from exporter.manifest.schema.entry import Document
from exporter.manifest.schema.tables import Table
from exporter.manifest.spec import gate as gate_spec

_NULL = {"type": "null"}


def build_schema() -> dict[str, Any]:
    """The schema, in the dialect of JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **build_table_schema(Document),
    }


def build_table_schema(table: type[Table]) -> dict[str, Any]:
    """The schema of one kind of table and of those in it."""
    found: dict[str, Any] = _cleaned(table.model_json_schema())
    texts = read_field_texts(tables, call_tables, override_table, entry, gate_spec, settings)
    for name, node in {**found.get("$defs", {}), table.__name__: found}.items():
        properties = node.get("properties", {})
        for key, each in properties.items():
            properties[key] = {"description": texts[name][key], **each}
    return found


def format_schema() -> str:
    """The schema as the committed file has it."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


def read_field_texts(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """The text under each field, by class; pydantic would read them at each start of the tool.

    Args:
        modules: With those that hold a class before those that inherit from it.
    """
    found: dict[str, dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                bases = (base.id for base in node.bases if isinstance(base, ast.Name))
                texts = {k: text for base in bases for k, text in found.get(base, {}).items()}
                found[node.name] = texts | dict(_field_texts(node))
    return found


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement in pairwise(node.body):
        match statement:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                yield name, " ".join(text.split())


def _cleaned(node: Any) -> Any:
    """Without null, which TOML lacks, empty defaults, titles, and line ends inside sentences."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: " ".join(value.split()) if key == "description" and isinstance(value, str) else value
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and (isinstance(value, dict) or value in (None, "", [])))
    }
    if "anyOf" in kept:
        *members, last = (each for each in node["anyOf"] if each != _NULL)
        del kept["anyOf"]
        kept |= {"anyOf": [*members, last]} if members else last
    return {key: _cleaned(value) for key, value in kept.items()}
