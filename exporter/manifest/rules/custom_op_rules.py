"""The key `custom_ops`: operators that the exporters lack, and their kernels."""

from __future__ import annotations

import posixpath
import re
from typing import Literal

from exporter.manifest.resolved.keys import CustomOp
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.sources import map_exporters
from exporter.manifest.syntax.values import (
    EXPORTER_TITLES,
    ExporterName,
    KeyPath,
    format_opsets,
    quote,
)

_ExportKey = Literal["symbolic", "onnxscript", "translation"]
_EXPORTERS: dict[_ExportKey, ExporterName] = {
    "symbolic": "torchscript",
    "onnxscript": "torchscript",
    "translation": "dynamo",
}
_KEYS: dict[ExporterName, str] = {
    "torchscript": "symbolic or onnxscript",
    "dynamo": "translation",
}
#: The form that `torch.onnx.register_custom_op_symbolic` accepts.
_TORCHSCRIPT = re.compile(r"[A-Za-z0-9_-]+::[A-Za-z_-][A-Za-z0-9_-]*", re.ASCII)
_DYNAMO = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?", re.ASCII)
_ONNX = re.compile(r"[A-Za-z_][\w.-]*::[A-Za-z_]\w*", re.ASCII)
_FORM: dict[ExporterName, str] = {
    "torchscript": '"namespace::operator"',
    "dynamo": '"namespace.operator.overload"',
}


def resolve_custom_ops(entry: EffectiveSettings) -> tuple[CustomOp, ...]:
    """Return the operators in the order of the manifest."""
    operators = []
    seen: set[tuple[str, ExporterName, int]] = set()
    for index, table in enumerate(entry.settings.custom_ops):
        key_path: KeyPath = ("custom_ops", index)
        key = next((key for key in _EXPORTERS if getattr(table, key)), None)
        if key is None:
            if not _ONNX.fullmatch(table.name):
                message = "an entry with only kernels needs an operator of the file: "
                message += f'expected "domain::Operator", got {quote(table.name)}'
                entry.add_problem((*key_path, "name"), message)
        else:
            _check_name(entry, key_path, table.name, _EXPORTERS[key])
            _check_use(entry, key_path, table, key)
            identity = (table.name, _EXPORTERS[key], table.opset)
            if identity in seen:
                message = f"{quote(table.name)} already has an entry from opset {table.opset}"
                entry.add_problem((*key_path, "name"), message)
            seen.add(identity)
        references = {
            key: entry.check_source((*key_path, key), text)
            for key in (*_EXPORTERS, "reference")
            if (text := getattr(table, key))
        }
        if library := table.ort_library:
            references["ort_library"] = _resolve_library(entry, (*key_path, "ort_library"), library)
        operators.append(table.model_copy(update=references))
    return tuple(operators)


def _check_name(
    entry: EffectiveSettings, key_path: KeyPath, name: str, exporter: ExporterName
) -> None:
    dynamo_name = _DYNAMO.fullmatch(name)
    suggestion = ""
    if exporter == "torchscript":
        if _TORCHSCRIPT.fullmatch(name):
            if name.startswith("onnx::"):
                entry.add_problem((*key_path, "name"), "ONNX's own operators cannot be replaced")
            return
        if dynamo_name:
            suggestion = f"{dynamo_name[1]}::{dynamo_name[2]}"
    else:
        if dynamo_name and dynamo_name[3]:
            return
        if dynamo_name:
            suggestion = f"{dynamo_name[1]}.{dynamo_name[2]}.default"
        elif _TORCHSCRIPT.fullmatch(name):
            suggestion = f"{name.replace('::', '.')}.default"
    hint = f"; did you mean {quote(suggestion)}?" if suggestion else ""
    form = f"{EXPORTER_TITLES[exporter]}'s form {_FORM[exporter]}"
    entry.add_problem((*key_path, "name"), f"expected {form}, got {quote(name)}{hint}")


def _check_use(
    entry: EffectiveSettings, key_path: KeyPath, table: CustomOp, key: _ExportKey
) -> None:
    """Report the entry if its exporter writes no opset of the model that it applies to."""
    expected = _EXPORTERS[key]
    exporters = map_exporters(entry)
    opsets = [opset for opset, exporter in exporters.items() if exporter == expected]
    title = EXPORTER_TITLES[expected]
    if not exporters:
        return
    if not opsets:
        actual = next(iter(exporters.values()))
        message = f"'{key}' is for {title}, but {EXPORTER_TITLES[actual]} exports all opsets of "
        entry.add_problem((*key_path, key), f"{message}this model; use {_KEYS[actual]}")
    elif table.opset > max(opsets):
        noun = "opsets" if len(opsets) > 1 else "opset"
        message = f"is never used: {title} exports {noun} {format_opsets(opsets)} of this model"
        entry.add_problem((*key_path, "opset"), message)


def _resolve_library(entry: EffectiveSettings, key_path: KeyPath, text: str) -> str:
    """Return the library, or the function that returns its path, relative to the manifest."""
    if ":" in text:
        return entry.check_source(key_path, text)
    if text.startswith(("/", "~")) or "\\" in text:
        form = "a path relative to the manifest, with forward slashes, or a function that returns"
        entry.add_problem(key_path, f"expected {form} one, got {quote(text)}")
        return text
    folder = entry.find_layer(key_path).folder
    name = posixpath.normpath(posixpath.join(folder, text))
    file, root = entry.project.root / name, entry.project.root.resolve()
    if name.startswith("../") or not file.resolve().is_relative_to(root):
        entry.add_problem(key_path, f"{quote(text)} is outside the project; use a file inside it")
    elif not file.is_file():
        entry.add_problem(
            key_path, f"the file {quote(name)} does not exist; build the library first"
        )
    return entry.relate(key_path, text)
