"""The keys `options` and `overrides`: other settings of an export, for all cells or for some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.core.frozen_model import Plain
from exporter.manifest.resolved.model import Override
from exporter.manifest.rules.layers import (
    FUNCTIONS,
    ONNX_FILE,
    EffectiveSettings,
    resolve_condition,
    resolve_tolerance,
)
from exporter.manifest.rules.sources import EXPORTER_OPTIONS, map_exporters
from exporter.manifest.schema.entry import OverrideTable
from exporter.manifest.syntax.table import read_keys
from exporter.manifest.syntax.values import (
    EXPORTER_TITLES,
    FIRST_DYNAMO_OPSET,
    KeyPath,
    format_opsets,
    join_words,
    quote,
)

#: ONNX has functions in files from this opset, with IR version 8.
_FIRST_FUNCTION_OPSET = 15
_FOLDING_OPTIONS = ("optimize", "do_constant_folding")
#: The keys of a cell that an override can replace, with their meaning.
_OVERRIDDEN = {key: each for key, each in read_keys(Override).items() if each.gate != "nothing"}
_CONDITIONS = ("opset", "device")


def resolve_options(entry: EffectiveSettings) -> dict[str, Plain]:
    """Return the options of the entry, after a check of these and of those of its overrides."""
    options = entry.settings.options.list_explicit()
    settings = entry.settings
    is_file = settings.artifact or settings.source.endswith(ONNX_FILE)
    is_exported = entry.has_valid("artifact", "source") and not is_file
    if is_exported and entry.has_valid("exporter", "capture", "opsets", "overrides"):
        _check_options(entry, ("options",), options, None)
        for index, table in enumerate(entry.settings.overrides):
            key_path: KeyPath = ("overrides", index, "options")
            _check_options(entry, key_path, table.options.list_explicit(), table.opset)
    return _check_module_types(entry, ("options",), options)


def _check_options(
    entry: EffectiveSettings,
    key_path: KeyPath,
    options: Mapping[str, Plain],
    opsets: tuple[int, ...] | None,
) -> None:
    """Report options that the exporters of these opsets do not have."""
    exporters = {
        opset: exporter
        for opset, exporter in map_exporters(entry).items()
        if opsets is None or opset in opsets
    }
    used = set(exporters.values())
    for key in options:
        owners = [name for name, names in EXPORTER_OPTIONS.items() if key in names]
        if used and used.isdisjoint(owners):
            current = join_words(EXPORTER_TITLES[name] for name in sorted(used))
            other = join_words(EXPORTER_TITLES[name] for name in owners)
            limit = "from" if other == "dynamo" else "below"
            message = f"{current} does not have the option '{key}'; {other} has it, which 'auto' "
            message += f"selects {limit} opset {FIRST_DYNAMO_OPSET}"
            entry.add_problem((*key_path, key), message)
    early = [
        opset
        for opset, exporter in exporters.items()
        if exporter == "torchscript" and opset < _FIRST_FUNCTION_OPSET
    ]
    has_override = opsets is None and any(
        FUNCTIONS in table.options.list_explicit() for table in entry.settings.overrides
    )
    if options.get(FUNCTIONS) and early and not has_override:
        message = f"ONNX has functions from opset {_FIRST_FUNCTION_OPSET}, not at "
        message += f"{format_opsets(early)}; write it in [[models.ID.overrides]] with "
        message += f'opset = ">={_FIRST_FUNCTION_OPSET}"'
        entry.add_problem((*key_path, FUNCTIONS), message)
    if "export_params" in options and not options["export_params"]:
        for key in _FOLDING_OPTIONS:
            if options.get(key):
                message = "computes new weights, but `export_params = false` removes them from the"
                entry.add_problem((*key_path, key), f"{message} file; remove one of the two")


def _check_module_types(
    entry: EffectiveSettings, key_path: KeyPath, options: Mapping[str, Any]
) -> dict[str, Plain]:
    types = options.get(FUNCTIONS)
    if not isinstance(types, tuple):
        return {**options}
    checked: list[Plain] = []
    for index, text in enumerate(types):
        item: KeyPath = (*key_path, FUNCTIONS, index)
        if ":" in text:
            checked.append(entry.check_source(item, text))
        else:
            form = '"file.py:Class" or "package.module:Class"'
            entry.add_problem(item, f"expected {form}, got {quote(text)}")
    return {**options, FUNCTIONS: checked}


def resolve_overrides(entry: EffectiveSettings) -> tuple[Override, ...]:
    overrides = []
    for index, table in enumerate(entry.settings.overrides):
        key_path: KeyPath = ("overrides", index)
        _check_keys(entry, key_path, table)
        tolerance = None
        if table.tolerance:
            tolerance = resolve_tolerance(entry, (*key_path, "tolerance"), table.tolerance)
        overrides.append(
            Override.from_fields(
                table,
                opsets=resolve_condition(entry, key_path, table),
                options=_check_module_types(
                    entry, (*key_path, "options"), table.options.list_explicit()
                ),
                tolerance=tolerance,
            )
        )
    return tuple(overrides)


def _check_keys(entry: EffectiveSettings, key_path: KeyPath, table: OverrideTable) -> None:
    keys = table.list_explicit()
    if not any(key in keys for key in _CONDITIONS):
        message = "needs `opset` or `device`; write settings for all cells in the entry itself"
        entry.add_problem(key_path, message)
    if all(key in _CONDITIONS for key in keys):
        names = join_words((f"`{key}`" for key in _OVERRIDDEN), "or")
        entry.add_problem(key_path, f"changes nothing; needs {names}")
    for key in keys:
        # All devices use the same file of an opset.
        if key in _OVERRIDDEN and _OVERRIDDEN[key].affects == "file" and table.device != "*":
            message = "all devices use the same file of an opset; remove `device` or this key"
            entry.add_problem((*key_path, key), message)
