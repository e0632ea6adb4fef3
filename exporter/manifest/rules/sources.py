"""Check saved models, and resolve the weights of an entry and their names.

A saved model belongs to one exporter: an `ExportedProgram` (`.pt2`) to dynamo, a TorchScript module
(`.pt`) to TorchScript. The worker applies the names of the weights after it has built the model.
"""

from __future__ import annotations

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.exporters import EXPORTER_TITLES, list_exporters
from exporter.manifest.rules.overrides import Variant, split_variants
from exporter.manifest.rules.references import References
from exporter.manifest.spec.model import ExporterName, ParameterNames
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote
from exporter.manifest.syntax.opsets import format_opsets

_WEIGHTS = (".safetensors", ".pt", ".pth", ".bin")


def resolve_weights(model: EffectiveSettings, references: References) -> dict[str, str]:
    """Return the fields `weights` and `weights_sha256` if they are set."""
    settings = model.settings
    fields: dict[str, str] = {}
    if ("weights",) in model.origins and model.has_valid("weights"):
        fields["weights"] = settings.weights
        if not settings.weights.endswith(_WEIGHTS):
            suffixes = ", ".join(_WEIGHTS)
            message = f"expected a file with a suffix of {suffixes}, got {quote(settings.weights)}"
            model.add_problem(("weights",), message)
        else:
            fields["weights"] = references.check_file(model, ("weights",), settings.weights)
    if ("weights_sha256",) in model.origins and model.has_valid("weights_sha256"):
        fields["weights_sha256"] = settings.weights_sha256
        if ("weights",) not in model.origins:
            model.add_problem(("weights_sha256",), "needs the key `weights`")
    return fields


def resolve_parameters(model: EffectiveSettings) -> ParameterNames | None:
    """Return the names of the weights, or None if they keep their names in the model."""
    match model.settings.parameters:
        case None:
            return None
        case str() as template:
            return ParameterNames(template=template)
        case dict() as patterns:
            return ParameterNames(patterns=patterns)
        case tuple() as names:
            owners: dict[str, KeyPath] = {}
            if model.has_valid("inputs", "outputs"):
                for key in ("inputs", "outputs"):
                    for index, table in enumerate(getattr(model.settings, key)):
                        owners[table.name] = (key, index)
            for index, name in enumerate(names):
                if owner := owners.get(name):
                    message = f"{quote(name)} is already the name of {format_key(owner)}"
                    model.add_problem(("parameters", index), message)
                owners.setdefault(name, ("parameters", index))
            return ParameterNames(names=names)


def check_saved_source(model: EffectiveSettings) -> None:
    """Report keys and exporters that do not apply to a saved model."""
    settings = model.settings
    if not model.has_valid("source"):
        return
    subject = "a saved TorchScript module"
    exporter: ExporterName = "torchscript"
    if settings.source.endswith(".pt2"):
        subject, exporter = "a saved program", "dynamo"
        if ("weights",) in model.origins:
            model.add_problem(("weights",), f"{subject} contains its own weights; remove this key")
        if settings.mode == "train":
            message = f"{subject} has the mode of its capture; remove this key"
            model.add_problem(("mode",), message)
        if settings.precision is not None:
            message = f"{subject} has the precision of its capture; remove this key"
            model.add_problem(("precision",), message)
    elif not settings.source.endswith(".pt"):
        return
    if settings.init:
        model.add_problem(("init",), f"{subject} takes no init arguments; remove this key")
    if model.has_valid("exporter", "capture", "opsets", "overrides"):
        for variant in split_variants(settings):
            _check_exporter(model, variant, subject, exporter)


def _check_exporter(
    model: EffectiveSettings, variant: Variant, subject: str, exporter: ExporterName
) -> None:
    settings = variant.settings
    if list_exporters(settings) == {exporter}:
        if settings.capture == "strict":
            path = variant.find_path("capture") or ("capture",)
            model.add_problem(path, f"{subject} is already captured; remove this key")
        return
    message = f"only {EXPORTER_TITLES[exporter]} can export {subject}"
    if settings.exporter != "auto" or settings.capture is not None:
        key = "exporter" if settings.exporter != "auto" else "capture"
        model.add_problem(variant.find_path(key) or (key,), message)
        return
    others = [opset for opset in settings.opsets if (opset >= 18) is (exporter == "torchscript")]
    message += f", but 'auto' selects the other exporter for {format_opsets(others)}"
    model.add_problem(("opsets",), f"{message}; use exporter = '{exporter}', or remove them")
