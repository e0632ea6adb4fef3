"""What an entry loads from files, saved models and weights, in; whether it can be used, out.

A saved model belongs to one exporter: an `ExportedProgram` (`.pt2`) to dynamo, a TorchScript module
(`.pt`) to TorchScript.
"""

from __future__ import annotations

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.exporters import list_exporters
from exporter.manifest.rules.overrides import Variant, split_variants
from exporter.manifest.rules.references import References
from exporter.manifest.syntax.message_format import quote
from exporter.manifest.syntax.opsets import format_opsets

_WEIGHTS = (".safetensors", ".pt", ".pth", ".bin")


def resolve_weights(model: EffectiveSettings, references: References) -> dict[str, str]:
    """The file of the weights and its hash, where they are said."""
    settings = model.settings
    found: dict[str, str] = {}
    if ("weights",) in model.origins and model.has("weights"):
        found["weights"] = settings.weights
        if not settings.weights.endswith(_WEIGHTS):
            kinds = ", ".join(_WEIGHTS)
            message = f"expected a file of one of the kinds {kinds}, got {quote(settings.weights)}"
            model.add_problem(("weights",), message)
        else:
            found["weights"] = references.file(model, ("weights",), settings.weights)
    if ("weights_sha256",) in model.origins and model.has("weights_sha256"):
        found["weights_sha256"] = settings.weights_sha256
        if ("weights",) not in model.origins:
            model.add_problem(("weights_sha256",), "there is no `weights` whose hash it could be")
    return found


def check_saved_source(model: EffectiveSettings) -> None:
    """Refuses keys that a saved model has no use for, and the exporter that cannot take it."""
    settings = model.settings
    if not model.has("source"):
        return
    if settings.source.endswith(".pt2"):
        what, own = "a saved program", "dynamo"
        if ("weights",) in model.origins:
            model.add_problem(("weights",), f"{what} holds its own weights")
        if settings.mode == "train":
            model.add_problem(("mode",), f"{what} has the mode that it was captured in")
        if settings.precision is not None:
            model.add_problem(("precision",), f"{what} has the precision that it was captured in")
    elif settings.source.endswith(".pt"):
        what, own = "a saved TorchScript module", "torchscript"
    else:
        return
    if settings.init:
        model.add_problem(("init",), f"{what} takes no init arguments")
    if model.has("exporter", "capture", "opsets", "overrides"):
        for variant in split_variants(settings):
            _check_exporter(model, variant, what, own)


def _check_exporter(model: EffectiveSettings, variant: Variant, what: str, own: str) -> None:
    settings = variant.settings
    title = {"dynamo": "dynamo", "torchscript": "TorchScript"}[own]
    if list_exporters(settings) == {own}:
        if settings.capture == "strict":
            place = variant.place("capture") or ("capture",)
            model.add_problem(place, f"{what} is captured already")
        return
    if settings.exporter != "auto" or settings.capture is not None:
        key = "exporter" if settings.exporter != "auto" else "capture"
        place = variant.place(key) or (key,)
        model.add_problem(place, f"{what} can be exported by {title} alone")
        return
    others = [opset for opset in settings.opsets if (opset >= 18) is (own == "torchscript")]
    message = f"{what} can be exported by {title} alone, and 'auto' takes the other exporter for"
    advice = f"say exporter = '{own}', or leave them out"
    model.add_problem(("opsets",), f"{message} {format_opsets(others)}; {advice}")
