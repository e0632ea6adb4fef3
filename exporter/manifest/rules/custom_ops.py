"""Custom operators: the entries of `custom_ops` in, `CustomOp`s out; problems are reported.

Each entry belongs to one exporter, which writes names in its own form. An entry that no opset of
the model would ever use is a slip, and is refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.exporters import choose_exporter
from exporter.manifest.rules.overrides import split_variants
from exporter.manifest.rules.references import References
from exporter.manifest.schema.tables import CustomOpTable
from exporter.manifest.spec.model import CustomOp, ExporterName
from exporter.manifest.syntax.message_format import KeyPath, quote
from exporter.manifest.syntax.opsets import format_opsets

_Way = Literal["symbolic", "onnxscript", "translation"]
_EXPORTER: dict[_Way, ExporterName] = {
    "symbolic": "torchscript",
    "onnxscript": "torchscript",
    "translation": "dynamo",
}
_TITLE: dict[ExporterName, str] = {"torchscript": "TorchScript", "dynamo": "dynamo"}
_INSTEAD: dict[ExporterName, str] = {
    "torchscript": "symbolic or onnxscript",
    "dynamo": "translation",
}
#: As `torch.onnx.register_custom_op_symbolic` takes them.
_TORCHSCRIPT = re.compile(r"[A-Za-z0-9_-]+::[A-Za-z_-][A-Za-z0-9_-]*", re.ASCII)
_DYNAMO = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?", re.ASCII)
_ONNX = re.compile(r"[A-Za-z_][\w.-]*::[A-Za-z_]\w*", re.ASCII)
_FORM: dict[ExporterName, str] = {
    "torchscript": '"namespace::operator"',
    "dynamo": '"namespace.operator.overload"',
}


def resolve_custom_ops(model: EffectiveSettings, references: References) -> tuple[CustomOp, ...]:
    """The operators in the order of the manifest."""
    found = []
    seen: set[tuple[str, ExporterName, int]] = set()
    for index, table in enumerate(model.settings.custom_ops):
        place: KeyPath = ("custom_ops", index)
        way = _way(table)
        if way is None:
            _check_operator(model, place, table.name)
        else:
            _check_name(model, place, table.name, _EXPORTER[way])
            _check_use(model, place, table, way)
            key = (table.name, _EXPORTER[way], table.opset or 1)
            if key in seen:
                message = f"{quote(table.name)} has an entry from opset {table.opset or 1} before"
                model.add_problem((*place, "name"), message)
            seen.add(key)
        found.append(_resolved(model, references, place, table))
    return tuple(found)


def _way(table: CustomOpTable) -> _Way | None:
    return next((way for way in _EXPORTER if getattr(table, way) is not None), None)


def _resolved(
    model: EffectiveSettings, references: References, place: KeyPath, table: CustomOpTable
) -> CustomOp:
    functions = {
        key: references.source(model, (*place, key), text)
        for key in (*_EXPORTER, "reference")
        if (text := getattr(table, key)) is not None
    }
    library = table.ort_library or ""
    if library:
        library = _library(model, references, (*place, "ort_library"), library)
    return CustomOp(name=table.name, opset=table.opset or 1, ort_library=library, **functions)


def _check_operator(model: EffectiveSettings, place: KeyPath, name: str) -> None:
    """The name of an entry of kernels is that of the file's operator."""
    if not _ONNX.fullmatch(name):
        message = (
            'kernels alone are for an operator of the file: expected "domain::Operator", '
            f"got {quote(name)}"
        )
        model.add_problem((*place, "name"), message)


def _check_name(
    model: EffectiveSettings, place: KeyPath, name: str, exporter: ExporterName
) -> None:
    if exporter == "torchscript":
        if _TORCHSCRIPT.fullmatch(name):
            if name.startswith("onnx::"):
                model.add_problem((*place, "name"), "ONNX's own operators cannot be replaced")
            return
        other = _DYNAMO.fullmatch(name)
        meant = f"{other[1]}::{other[2]}" if other else ""
    else:
        whole = _DYNAMO.fullmatch(name)
        if whole and whole[3]:
            return
        meant = f"{whole[1]}.{whole[2]}.default" if whole else ""
        if _TORCHSCRIPT.fullmatch(name):
            meant = f"{name.replace('::', '.')}.default"
    hint = f"; did you mean {quote(meant)}?" if meant else ""
    message = f"expected {_TITLE[exporter]}'s form {_FORM[exporter]}, got {quote(name)}{hint}"
    model.add_problem((*place, "name"), message)


def _check_use(model: EffectiveSettings, place: KeyPath, table: CustomOpTable, way: _Way) -> None:
    """Some opset of the model has to be made by the entry's exporter, and be high enough."""
    if not model.has("exporter", "capture", "opsets", "overrides"):
        return
    wanted = _EXPORTER[way]
    makers = {
        opset: choose_exporter(variant.settings, opset)
        for variant in split_variants(model.settings)
        for opset in variant.settings.opsets
    }
    own = [opset for opset, exporter in makers.items() if exporter == wanted]
    if not own:
        other = next(iter(makers.values()))
        message = (
            f"{_TITLE[other]} makes all opsets of this model and takes {_INSTEAD[other]}; "
            f"'{way}' is {_TITLE[wanted]}'s"
        )
        model.add_problem((*place, way), message)
    elif table.opset is not None and table.opset > max(own):
        message = f"is never used: {_TITLE[wanted]} makes {_opsets(own)} of this model"
        model.add_problem((*place, "opset"), message)


def _opsets(opsets: list[int]) -> str:
    return f"opset{'s' if len(opsets) > 1 else ''} {format_opsets(opsets)}"


def _library(model: EffectiveSettings, references: References, path: KeyPath, text: str) -> str:
    """A file, or a function that returns the path of one, relative to the model's manifest."""
    if ":" in text:
        return references.source(model, path, text)
    for problem in _path_problems(text):
        model.add_problem(path, problem)
        return text
    folder = model.origin(path).folder
    name = posixpath.normpath(posixpath.join(folder, text))
    file, root = references.root / name, references.root.resolve()
    if name.startswith("../") or not file.resolve().is_relative_to(root):
        model.add_problem(path, f"{quote(text)} lies outside the project")
    elif not file.is_file():
        model.add_problem(path, f"there is no file {quote(name)}; build the library first")
    if folder == model.own.folder:
        return text
    return posixpath.relpath(name, model.own.folder or ".")


def _path_problems(text: str) -> Iterator[str]:
    if text.startswith(("/", "~")) or "\\" in text:
        yield (
            "expected a path relative to the manifest, with forward slashes, or a function that "
            f"returns one, got {quote(text)}"
        )
