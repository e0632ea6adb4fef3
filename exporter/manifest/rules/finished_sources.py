"""Finished files and saved models (`.pt2`, `.pt`, `.jit`): keys that do not apply to them."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.manifest.resolved.model import OPSET_PLACEHOLDER
from exporter.manifest.rules.layers import (
    ONNX_FILE,
    SAVED_MODELS,
    EffectiveSettings,
    split_variants,
)
from exporter.manifest.rules.sources import (
    check_exporter,
    check_sequences,
    list_exporters,
)
from exporter.manifest.syntax.values import (
    EXPORTER_TITLES,
    FIRST_DYNAMO_OPSET,
    ExporterName,
    KeyPath,
    format_opsets,
    quote,
)

_ARTIFACT = ("artifact",)
_FILE = "an ONNX file"
#: Options that describe the file; the others control an export.
_FILE_OPTIONS = frozenset(
    {"custom_opsets", "export_params", "external_data", "keep_initializers_as_inputs"}
)
_NOT_EXPORTED = "does not apply to {}, which is not exported; remove it"


def resolve_artifact(entry: EffectiveSettings) -> str:
    """Return the path relative to the model's manifest, with the placeholder.

    If there is none, check that an exporter can write the files.
    """
    if entry.settings.source.endswith(ONNX_FILE):
        _check_own_keys(entry, _FILE)
    if entry.settings.artifact:
        return _resolve_file(entry, "artifact")
    if entry.settings.source.endswith(ONNX_FILE):
        return _resolve_file(entry, "source")
    check_exporter(entry)
    check_sequences(entry)
    if entry.settings.source.endswith(SAVED_MODELS):
        _check_saved_source(entry)
    return ""


def _resolve_file(entry: EffectiveSettings, key: str) -> str:
    """Return the file of the key `artifact`, or of `source` if that is the file to prove."""
    settings = entry.settings
    text = str(getattr(settings, key))
    for key_path in _list_export_keys(entry):
        entry.add_problem(
            key_path, _NOT_EXPORTED.format(_FILE if key == "source" else "an `artifact`")
        )
    if not text.endswith(".onnx"):
        entry.add_problem(_ARTIFACT, f"expected a file with the suffix .onnx, got {quote(text)}")
        return text
    if not entry.has_valid("opsets"):
        return text
    if len(settings.opsets) > 1 and OPSET_PLACEHOLDER not in text:
        example = f"{text.removesuffix('.onnx')}-{OPSET_PLACEHOLDER}.onnx"
        message = f"each of the opsets {format_opsets(settings.opsets)} needs a file of its own"
        if key == "source":
            fix = "one opset, or name the files of the others as `artifact`"
            entry.add_problem(("opsets",), f"{message}, and `source` is one; keep {fix}")
            return text
        entry.add_problem(
            _ARTIFACT, f"{message}; write {OPSET_PLACEHOLDER} in the path: {quote(example)}"
        )
        return text
    for opset in settings.opsets:
        if key == "artifact":
            entry.check_file(_ARTIFACT, text.replace(OPSET_PLACEHOLDER, str(opset)))
    return entry.relate((key,), text)


def _list_export_keys(entry: EffectiveSettings) -> Iterator[KeyPath]:
    """Yield the entry's own keys that control an export; inherited ones are ignored."""
    for key in ("exporter", "capture"):
        if entry.origins.get((key,)) is entry.own_layer:
            yield (key,)
    if entry.has_valid("options"):
        for key in entry.settings.options.list_explicit():
            if key not in _FILE_OPTIONS and entry.find_layer(("options", key)) is entry.own_layer:
                yield ("options", key)
    if not entry.has_valid("overrides") or entry.find_layer(("overrides",)) is not entry.own_layer:
        return
    for index, table in enumerate(entry.settings.overrides):
        for key in ("exporter", "capture"):
            if key in table.model_fields_set:
                yield ("overrides", index, key)
        for key in table.options.list_explicit():
            if key not in _FILE_OPTIONS:
                yield ("overrides", index, "options", key)


def _check_own_keys(entry: EffectiveSettings, subject: str) -> None:
    """Report keys of a model whose file has its weights, its mode and its precision."""
    settings = entry.settings
    if ("weights",) in entry.origins:
        entry.add_problem(("weights",), f"{subject} contains its own weights; remove this key")
    if settings.mode == "train":
        entry.add_problem(("mode",), f"{subject} has the mode of its capture; remove this key")
    if settings.precision is not None:
        message = f"{subject} has the precision of its capture; remove this key"
        entry.add_problem(("precision",), message)
    if subject == _FILE:
        _check_init(entry, subject)
        if settings.export_device != "cpu":
            entry.add_problem(("export_device",), f"{subject} runs on the CPU; remove this key")


def _check_init(entry: EffectiveSettings, subject: str) -> None:
    if entry.settings.init:
        entry.add_problem(("init",), f"{subject} takes no init arguments; remove this key")


def _check_saved_source(entry: EffectiveSettings) -> None:
    """Report keys and exporters that do not apply to a saved model."""
    settings = entry.settings
    if not entry.has_valid("source"):
        return
    subject = "a saved TorchScript module"
    exporter: ExporterName = "torchscript"
    if settings.source.endswith(".pt2"):
        subject, exporter = "a saved program", "dynamo"
        _check_own_keys(entry, subject)
    elif not settings.source.endswith(SAVED_MODELS):
        return
    _check_init(entry, subject)
    message = f"only {EXPORTER_TITLES[exporter]} can export {subject}"
    for variant in split_variants(entry):
        settings = variant.settings
        key = "exporter" if settings.exporter != "auto" else "capture"
        if list_exporters(settings) == {exporter}:
            if settings.capture in ("strict", "draft"):
                key_path = variant.find_path("capture") or ("capture",)
                entry.add_problem(key_path, f"{subject} is already captured; remove this key")
        elif settings.exporter != "auto" or settings.capture is not None:
            entry.add_problem(variant.find_path(key) or (key,), message)
        else:
            is_old = exporter == "torchscript"
            others = [opset for opset in settings.opsets if (opset >= FIRST_DYNAMO_OPSET) is is_old]
            fix = f"but 'auto' selects the other exporter for {format_opsets(others)}; use "
            fix += f"exporter = '{exporter}', or remove them"
            entry.add_problem(("opsets",), f"{message}, {fix}")
