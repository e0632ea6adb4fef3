"""The stable interfaces as lines of text, and the comparison of two versions.

An offer is a line that a user relies on: a key, an option, a code. A demand is a line that a user
has to meet: a required key, a required parameter, another type in a document. A later minor version
may have more offers and fewer demands.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import click
import yaml
from pydantic import BaseModel

import exporter.api
import exporter.cli.plugin
import exporter.runtimes
import exporter.testing
from benchmarks.documents import build_results_schema
from benchmarks.manifest_schema import build_schema, build_table_schema
from exporter.cli import entry_point
from exporter.core.check_table import CHECKS, FAILURE_CODES
from exporter.core.errors import ExitCode
from exporter.core.import_object import COMMAND_GROUP, RUNTIME_GROUP
from exporter.manifest import FindingKind
from exporter.manifest.resolved.policy import LIMITS
from exporter.manifest.schema.settings import ProjectTable
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.records.baseline import AcceptedModel
from exporter.records.record import CellId
from exporter.report.plugin_files import GROUP as REPORT_GROUP

ROOT = Path(__file__).parents[2]
#: The committed snapshot of the last release.
SNAPSHOT = Path(__file__).with_name("interface.json")
UPDATE = "python -m tests.stability"
_MODULES = (exporter.api, exporter.testing, exporter.cli.plugin, exporter.runtimes)
#: The classes that a user creates; others come from functions, so they may get required fields.
_CREATED = ("CellId", "ExportOptions", "Placement", "Selection", "Shard")
_CODE = re.compile(r"^  (\d+) ", re.MULTILINE)
#: Rules of a schema that reject values.
_LIMITS = ("maximum", "minimum", "maxItems", "minItems", "maxLength", "minLength")
_LIMITS += ("exclusiveMaximum", "exclusiveMinimum", "pattern", "additionalProperties")
#: The files that a user writes.
SETTINGS = {"manifest": build_schema(), "[tool.exporter]": build_table_schema(ProjectTable)}
#: A line, and whether it is an offer.
Line = tuple[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The lines of one version."""

    version: str
    offers: frozenset[str]
    demands: frozenset[str]

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        offers = _add_subjects(fields["offers"])
        return cls(version=fields["version"], offers=offers, demands=frozenset(fields["demands"]))

    def to_json(self) -> str:
        """Return the lines without those that a line with a fact about them implies."""
        implied = {_find_subject(line) for line in self.offers if ": " in line}
        lines = {"offers": sorted(self.offers - implied), "demands": sorted(self.demands)}
        fields = {"version": self.version, **lines}
        return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


def _find_subject(line: str) -> str:
    """Return the part of a line before its fact: `x` of `x: string`."""
    return line.partition(": ")[0]


def _add_subjects(offers: Iterable[str]) -> frozenset[str]:
    """Add the subject of each fact, which the user relies on as well."""
    offers = frozenset(offers)
    return offers | {_find_subject(line) for line in offers}


def make_interface(version: str, lines: Iterable[Line]) -> Interface:
    """Return the interface with these lines; True marks an offer."""
    sides = {True: set[str](), False: set[str]()}
    for line, is_offer in lines:
        sides[is_offer].add(line)
    offers = _add_subjects(sides[True])
    return Interface(version=version, offers=offers, demands=frozenset(sides[False]))


def list_incompatible(released: Interface, current: Interface) -> list[str]:
    """Return each change that breaks a user of the released version; none for a new major one."""
    if current.version.partition(".")[0] != released.version.partition(".")[0]:
        return []
    removed = [f"removed: {line}" for line in sorted(released.offers - current.offers)]
    return removed + [
        f"demanded: {line}"
        for line in sorted(current.demands - released.demands)
        if _find_subject(line) in released.offers  # else it is about something new
        and not _is_wider(line, released.demands)
    ]


_MAXIMUM = re.compile(r"(.*: maximum )(\d+)")


def _is_wider(line: str, released: frozenset[str]) -> bool:
    """Return True if the line raises a maximum of the released version."""
    raised = _MAXIMUM.fullmatch(line)
    if raised is None:
        return False
    limits = (_MAXIMUM.fullmatch(each) for each in released)
    return any(old and old[1] == raised[1] and int(old[2]) <= int(raised[2]) for old in limits)


def list_changes(released: Interface, current: Interface) -> list[str]:
    """Return the lines that differ."""
    before, now = (each.offers | each.demands for each in (released, current))
    return [f"+ {line}" for line in sorted(now - before)] + [
        f"- {line}" for line in sorted(before - now)
    ]


def read_interface() -> Interface:
    """Return the lines of this checkout."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*_list_names(pyproject), *_list_action()]
    for module in _MODULES:
        lines += _list_module(module)
    inputs = {**SETTINGS, "baseline": AcceptedModel.model_json_schema()}
    for name, schema in SETTINGS.items():
        # Both tables of defaults have the keys of an entry, as a test proves.
        properties = {**schema["properties"], "defaults": {"type": "object"}}
        inputs[name] = {**schema, "properties": properties}
    outputs = {"results.json": build_results_schema()}
    context = click.Context(entry_point.exporter)
    for name in entry_point.BUILT_IN:
        command = entry_point.exporter.get_command(context, name)
        assert command is not None
        lines += _list_command(name, command)
        if document := getattr(command.callback, "document", None):
            outputs[f"{name} --json"] = document.model_json_schema(mode="serialization")
    for is_input, schemas in ((True, inputs), (False, outputs)):
        for name, schema in schemas.items():
            lines += list_schema(name, schema, is_input=is_input)
    return make_interface(pyproject["version"], lines)


def _list_names(project: Mapping[str, Any]) -> list[Line]:
    cell = CellId(model="MODEL", opset=17, device="DEVICE")
    names = {
        "exit code": [*(f"{code.value} {code.name}" for code in ExitCode)],
        "exit code of --help": _CODE.findall(entry_point._EXIT_CODES),
        "failure code": FAILURE_CODES,
        "finding": [f"{kind.key}: {kind}" for kind in FindingKind],
        "finding by default": [f"{kind.key}: {kind.default_action}" for kind in FindingKind],
        "limit by default": [f"{kind.key}: {factor}" for kind, factor in LIMITS.items()],
        "check": CHECKS,
        "runtime": RUNTIMES,
        "cell": [str(cell)],
        "entry points": [COMMAND_GROUP, RUNTIME_GROUP, REPORT_GROUP],
        "program": project["scripts"],
        "extra": project["optional-dependencies"],
    }
    blocking = (kind.key for kind in FindingKind if kind.default_action == "block")
    return [
        *((f"{kind} {name}", True) for kind, values in names.items() for name in values),
        *((f"[tool.exporter].gate: {key} blocks by default", False) for key in blocking),
    ]


def _list_action() -> list[Line]:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["inputs"]
    lines = [("action.yml", True), *((f"action.yml: input {name}", True) for name in inputs)]
    return lines + [
        (f"action.yml: requires {name}", False)
        for name, field in inputs.items()
        if field.get("required")
    ]


def _list_command(name: str, command: click.Command) -> Iterator[Line]:
    yield f"exporter {name}", True
    for each in command.params:
        shown = "argument" if isinstance(each, click.Argument) else "option"
        takes = "" if getattr(each, "is_flag", False) else f" takes {each.type.name}"
        many = ", many" if each.multiple or each.nargs != 1 else ""
        titles = [each.name or ""] if shown == "argument" else [*each.opts, *each.secondary_opts]
        for title in titles:
            yield f"exporter {name}: {shown} {title}{takes}{many}", True
            if takes == " takes path":  # a wider type keeps the narrower one
                yield f"exporter {name}: {shown} {title} takes directory{many}", True
            if each.required:
                yield f"exporter {name}: requires {titles[0]}", False
        for word in getattr(each.type, "choices", ()):
            yield f"exporter {name}: {titles[0]} {word}", True
    for word, child in getattr(command, "commands", {}).items():
        yield from _list_command(f"{name} {word}", child)


def list_schema(path: str, root: Mapping[str, Any], *, is_input: bool) -> list[Line]:
    """Return the lines of a schema; each table is described at each place.

    In a file that a user writes, a type is an offer and a required key a demand. In a document
    that the program writes, it is the other way round. New words in a document are additions.
    """
    lines: list[Line] = []

    def visit(path: str, node: Any, above: tuple[str, ...]) -> None:
        lines.append((path, True))
        if name := node.get("$ref", "").rpartition("/")[2]:
            if name not in above:  # a table that contains itself
                visit(path, root["$defs"][name], (*above, name))
            return
        lines.extend(_list_rules(path, node, is_input=is_input))
        for child, field in _list_children(path, node):
            visit(child, field, above)

    visit(path, root, ())
    return lines


def _list_rules(path: str, node: Mapping[str, Any], *, is_input: bool) -> Iterator[Line]:
    for word in node.get("enum", [node["const"]] if "const" in node else ()):
        yield f"{path}: {json.dumps(word)}", True
    kinds = node.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield f"{path}: {kind}", is_input
    for key in node.get("required", ()):
        yield (f"{path}: requires {key}", False) if is_input else (f"{path}.{key}: always", True)
    if is_input:
        for name in _LIMITS:
            if node.get(name) is not None and not isinstance(node[name], dict):
                yield f"{path}: {name} {json.dumps(node[name])}", False
        if "default" in node:
            yield f"{path}: default {json.dumps(node['default'])}", True


def _list_children(path: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in ("anyOf", "oneOf", "allOf"):
        yield from ((path, each) for each in node.get(name, ()))
    for key, field in node.get("properties", {}).items():
        yield f"{path}.{key}", field
    values = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    yield from ((f"{path}.*", each) for each in values if isinstance(each, dict))
    if isinstance(node.get("items"), dict):
        yield f"{path}[]", node["items"]
    for index, field in enumerate(node.get("prefixItems", ())):
        yield f"{path}[{index}]", field


def _list_module(module: ModuleType) -> list[Line]:
    names: Iterable[str] = getattr(module, "__all__", ("prove",))
    return [
        line
        for name in names
        for line in list_object(f"{module.__name__}.{name}", getattr(module, name))
    ]


def list_object(path: str, value: Any) -> list[Line]:
    """Return the lines of a public function, class or constant."""
    lines = [(path, True)]
    if not inspect.isclass(value):
        return lines + (_list_parameters(path, value) if callable(value) else [])
    if issubclass(value, Enum):
        return lines + [(f"{path}.{each.name}", True) for each in value]
    is_protocol = getattr(value, "_is_protocol", False)
    members = {name for name in dir(value) if not name.startswith("_")}
    if issubclass(value, BaseModel):
        members = (members - set(dir(BaseModel))) | set(value.model_fields)
    if issubclass(value, BaseException):
        members -= set(dir(Exception))
    for name in sorted(members):
        lines.append((f"{path}.{name}", True))
        if is_protocol:  # a user implements it
            lines.append((f"{path}: implement {name}", False))
        member = inspect.getattr_static(value, name, None)
        if inspect.isfunction(member):
            lines += _list_parameters(f"{path}.{name}", member)
    return lines + (_list_parameters(path, value) if value.__name__ in _CREATED else [])


def _list_parameters(path: str, value: Any) -> list[Line]:
    lines: list[Line] = []
    for index, each in enumerate(inspect.signature(value).parameters.values()):
        if each.name == "self":
            continue
        place = f" at {index}" if each.kind is each.POSITIONAL_OR_KEYWORD else ""
        lines.append((f"{path}: {each.kind.description} {each.name}{place}", True))
        if each.default is not each.empty:
            is_plain = isinstance(each.default, str | int | float | tuple | None)
            default = repr(each.default) if is_plain else "another"
            lines.append((f"{path}: {each.name} = {default}", True))
        elif each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            lines.append((f"{path}: give {each.name}", False))
    return lines
