"""The JSON Schema of manifests, from the classes that validate them and their docstrings."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from types import ModuleType
from typing import Any

from exporter.manifest.resolved import call, keys, model, policy
from exporter.manifest.schema import entry, settings, tables
from exporter.manifest.schema.entry import Document
from exporter.manifest.syntax.table import Table

_NULL = {"type": "null"}


def build_schema() -> dict[str, Any]:
    """Return the schema of a manifest in the dialect of JSON Schema 2020-12."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **build_table_schema(Document)}


def build_table_schema(table: type[Table]) -> dict[str, Any]:
    root: dict[str, Any] = _simplify(table.model_json_schema())
    modules = (call, keys, model, tables, entry, policy, settings)
    texts = read_field_texts(*modules)
    for name, node in {**root.get("$defs", {}), table.__name__: root}.items():
        properties = node.get("properties", {})
        for key, field in properties.items():
            properties[key] = {"description": texts[name][key], **field}
    return root


def read_field_texts(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """Return the docstring under each field or member, by class and name.

    pydantic would read them each time that the tool starts. A module with a class must precede
    the modules with its subclasses.
    """
    classes: dict[str, dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            texts: dict[str, str] = {}
            for base in node.bases:
                texts |= classes.get(base.id, {}) if isinstance(base, ast.Name) else {}
            for statement in pairwise(node.body):
                match statement:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name))
                        | ast.Assign(targets=[ast.Name(id=name)]),
                        ast.Expr(value=ast.Constant(value=str() as text)),
                    ):
                        texts[name] = " ".join(text.split())
            classes[node.name] = texts
    return classes


def _simplify(node: Any) -> Any:
    """Remove null, which TOML lacks, empty defaults, titles and line breaks."""
    if isinstance(node, list):
        return [_simplify(item) for item in node]
    if not isinstance(node, dict):
        return node
    simple = {
        key: " ".join(value.split()) if key == "description" and isinstance(value, str) else value
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and (isinstance(value, dict) or value in (None, "", [])))
    }
    if "anyOf" in simple:
        *members, last = (member for member in node["anyOf"] if member != _NULL)
        del simple["anyOf"]
        simple |= {"anyOf": [*members, last]} if members else last
    return {key: _simplify(value) for key, value in simple.items()}
