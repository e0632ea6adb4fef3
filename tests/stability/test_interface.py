"""No minor version breaks a user of the one before: the lines of `interface.json`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import pytest

from tests.stability.interface import (
    SETTINGS,
    SNAPSHOT,
    UPDATE,
    Interface,
    _list_command,
    list_changes,
    list_incompatible,
    list_object,
    list_schema,
    make_interface,
    read_interface,
)

RELEASED = Interface.from_json(SNAPSHOT.read_text("utf-8"))


def test_this_version_keeps_the_interfaces_of_the_last_release() -> None:
    current = read_interface()
    assert not list_incompatible(RELEASED, current), "only a new major version may do so"
    changes = list_changes(RELEASED, current)
    assert not changes, f"commit the snapshot that `{UPDATE}` writes"


def test_both_tables_of_defaults_have_the_keys_of_an_entry() -> None:
    """The snapshot contains the keys of an entry only."""
    entry, *defaults = (
        {
            (line.removeprefix(table), is_offer)
            for line, is_offer in list_schema(name, SETTINGS[name], is_input=True)
            if line.startswith(table)
        }
        for name, table in (
            ("manifest", "manifest.models.*"),
            ("manifest", "manifest.defaults"),
            ("[tool.exporter]", "[tool.exporter].defaults"),
        )
    )
    only_of_entries = {pair for pair in entry if pair[0].startswith((".extends", ".was"))}
    assert defaults == [entry - only_of_entries] * 2


#: A line of the release -> the line of a version that breaks its users.
BREAKS = {
    "manifest.models.*.opsets": "manifest.models.*.opset_versions",
    "exporter export: option --jobs takes integer range": "exporter export: option --workers",
    "exit code 3 NOTHING_SELECTED": "exit code 2 NOTHING_SELECTED",
    "failure code E-axis-fixed": "failure code E-fixed-axis",
    "gate --json.findings[].cells": "gate --json.findings[].names",
    "exporter.testing.prove: keyword-only axes": "exporter.testing.prove: keyword-only dims",
    "results.json.records[].status: always": "results.json.records[].status: sometimes",
    "entry points exporter.runtimes": "entry points exporter.devices",
    "finding by default newly_red: block": "finding by default newly_red: warn",
    "limit by default file_grown: 1.05": "limit by default file_grown: 2.0",
}


@pytest.mark.parametrize("line", BREAKS)
def test_a_changed_line_needs_a_major_version(line: str) -> None:
    assert line in RELEASED.offers
    offers = RELEASED.offers - {line} | {BREAKS[line]}
    changed = replace(RELEASED, version="1.1.0", offers=offers)
    assert list_incompatible(RELEASED, changed) == [f"removed: {line}"]
    assert not list_incompatible(RELEASED, replace(changed, version="2.0.0"))


@pytest.mark.parametrize(
    "line",
    [
        "manifest.models.*: requires owner",
        "exporter gate: requires --against",
        "exporter.testing.prove: give name",
        "results.json.records[].cell: null",
        "[tool.exporter].gate: new_finding blocks by default",
    ],
)
def test_a_new_demand_needs_a_major_version(line: str) -> None:
    changed = replace(RELEASED, demands=RELEASED.demands | {line})
    assert list_incompatible(RELEASED, changed) == [f"demanded: {line}"]
    new = replace(RELEASED, demands=RELEASED.demands | {"exporter new: requires FILE"})
    assert not list_incompatible(RELEASED, new)
    dropped = replace(RELEASED, demands=RELEASED.demands - {max(RELEASED.demands)})
    assert not list_incompatible(RELEASED, dropped)


@pytest.mark.parametrize(("opset", "breaks"), [(27, False), (25, True)])
def test_a_lower_maximum_needs_a_major_version(opset: int, breaks: bool) -> None:
    line = "manifest.models.*.opsets: maximum "
    before = replace(RELEASED, demands=RELEASED.demands | {f"{line}26"})
    before = replace(before, demands=before.demands - {f"{line}28"})
    after = replace(before, demands=before.demands - {f"{line}26"} | {f"{line}{opset}"})
    assert bool(list_incompatible(before, after)) is breaks


def test_an_addition_only_updates_the_snapshot() -> None:
    changed = replace(RELEASED, offers=RELEASED.offers | {"failure code E-new"})
    assert not list_incompatible(RELEASED, changed)
    assert list_changes(RELEASED, changed) == ["+ failure code E-new"]


TABLE = {
    "properties": {"a": {"type": "string", "default": "x"}, "b": {"enum": ["p", "q"]}},
    "required": ["b"],
}


def describe(**changes: Any) -> dict[str, Any]:
    """Return the schema with other properties; None removes a property or its rule."""
    properties = {**TABLE["properties"], **changes.pop("properties", {})}
    return {**TABLE, **changes, "properties": {k: v for k, v in properties.items() if v}}


A, B = TABLE["properties"].values()
C = {"type": "integer"}
#: The change of a schema; whether it breaks the writer of a file, and the reader of a document.
SCHEMAS = {
    "none": ({}, False, False),
    "a new key": ({"properties": {"c": C}}, False, False),
    "a new required key": ({"properties": {"c": C}, "required": ["b", "c"]}, True, False),
    "a removed key": ({"properties": {"a": None}}, True, True),
    "a key that may be absent": ({"required": []}, False, True),
    "another type": ({"properties": {"a": {**A, "type": "integer"}}}, True, True),
    "one more type": ({"properties": {"a": {**A, "type": ["string", "null"]}}}, False, True),
    "another default": ({"properties": {"a": {**A, "default": "y"}}}, True, False),
    "a removed word": ({"properties": {"b": {"enum": ["p"]}}}, True, True),
    "a new word": ({"properties": {"b": {"enum": ["p", "q", "r"]}}}, False, False),
    "a limit": ({"properties": {"a": {**A, "maxLength": 3}}}, True, False),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_change_of_a_schema_breaks_its_writer_or_its_reader(name: str) -> None:
    changes, *expected = SCHEMAS[name]
    for is_input, breaks in zip((True, False), expected, strict=True):
        before, after = (
            make_interface("1.0.0", list_schema("x", schema, is_input=is_input))
            for schema in (TABLE, describe(**changes))
        )
        assert bool(list_incompatible(before, after)) is breaks, is_input


def old(root, *, jobs=1, **others): ...  # type: ignore[no-untyped-def]
def renamed(folder, *, jobs=1, **others): ...  # type: ignore[no-untyped-def]
def demanding(root, cells, *, jobs=1, **others): ...  # type: ignore[no-untyped-def]
def defaulted(root, *, jobs=2, **others): ...  # type: ignore[no-untyped-def]
def extended(root, cells=(), *, jobs=1, more=None, **others): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(old, False), (extended, False), (renamed, True), (demanding, True), (defaulted, True)],
)
def test_a_change_of_a_function_breaks_its_callers(function: object, breaks: bool) -> None:
    before, after = (make_interface("1.0.0", list_object("f", each)) for each in (old, function))
    assert bool(list_incompatible(before, after)) is breaks


@pytest.mark.parametrize(
    ("options", "breaks"),
    [
        (["--jobs", "--lf"], False),
        (["--jobs", "--lf", "--new"], False),
        (["--jobs"], True),
        (["--jobs", "--lf", "REQUIRED"], True),
    ],
)
def test_a_change_of_a_command_breaks_its_scripts(options: list[str], breaks: bool) -> None:
    def make_command(names: list[str]) -> Interface:
        params: list[click.Parameter] = [
            click.Option([name], is_flag=name == "--lf") for name in names if name != "REQUIRED"
        ]
        params += [click.Argument(["cells"], required=True)] if "REQUIRED" in names else []
        return make_interface("1.0.0", _list_command("x", click.Command("x", params=params)))

    assert (
        bool(list_incompatible(make_command(["--jobs", "--lf"]), make_command(options))) is breaks
    )
