"""Which exporter makes which opset, and whether capture, opsets and options agree with that.

In: an entry's `exporter`, `capture`, `opsets`, `options`. Out: the options; problems are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.core.frozen_model import Plain
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.overrides import Variant, split_variants
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import list_explicit_values
from exporter.manifest.spec.model import ExporterName
from exporter.manifest.syntax.message_format import KeyPath, join_words
from exporter.manifest.syntax.opsets import NATIVE_OPSETS, REQUESTABLE_OPSETS, format_opsets

_TITLE = {"dynamo": "dynamo", "torchscript": "TorchScript"}
_CAPTURES = {"dynamo": ("export", "strict"), "torchscript": ("trace", "script")}
_DYNAMO_SINCE = NATIVE_OPSETS["dynamo"][0]
_SEQUENCES_SINCE = 11

#: What both take.
COMMON_OPTIONS = ("export_params", "external_data", "keep_initializers_as_inputs", "verbose")
#: The options of each exporter, as of torch 2.13.
EXPORTER_OPTIONS: dict[ExporterName, frozenset[str]] = {
    "dynamo": frozenset(
        {
            *COMMON_OPTIONS, "custom_opsets", "optimize", "report", "profile",
            "dump_exported_program",
        }
    ),
    "torchscript": frozenset(
        {
            *COMMON_OPTIONS, "autograd_inlining", "custom_opsets", "do_constant_folding",
            "export_modules_as_functions", "operator_export_type", "training",
        }
    ),
}  # fmt: skip

#: With `export_params = false`, what keeps each weight what it is: folding and optimisation compute
#: new ones, and TorchScript makes one of two that happen to be equal unless they are inputs.
WEIGHTS_AS_INPUTS: dict[ExporterName, dict[str, Plain]] = {
    "dynamo": {"optimize": False},
    "torchscript": {
        "keep_initializers_as_inputs": True,
        "do_constant_folding": False,
        "training": "PRESERVE",
    },
}


_FOLDING = ("optimize", "do_constant_folding")


def check_exporter(model: EffectiveSettings) -> None:
    """Refuses opsets that the exporter cannot make, and captures that belong to the other one."""
    if model.has("exporter", "capture", "overrides"):
        for variant in split_variants(model.settings) if model.has("opsets") else ():
            _check_variant(model, variant)


def _check_variant(model: EffectiveSettings, variant: Variant) -> None:
    settings = variant.settings
    chosen = _chosen(settings)
    if settings.capture and chosen and settings.capture not in _CAPTURES[chosen]:
        own = join_words(f"'{capture}'" for capture in _CAPTURES[chosen])
        message = f"'{settings.capture}' is not a capture of {_TITLE[chosen]}, which has {own}"
        place = variant.place("capture") or model.first_own_key("capture", "exporter")
        model.add_problem(place, message)
        return
    if chosen is None:
        return
    # Only who names dynamo gets what its version converter makes of opset 18.
    first, last = (NATIVE_OPSETS if settings.exporter == "auto" else REQUESTABLE_OPSETS)[chosen]
    outside = [opset for opset in settings.opsets if not first <= opset <= last]
    if outside:
        message = f"{_TITLE[chosen]} makes opsets {first} to {last}, not {format_opsets(outside)}"
        other = "exporter" if settings.exporter != "auto" else "capture"
        place = variant.place(other) or model.first_own_key("opsets", other)
        model.add_problem(place, f"{message}; {_way_out(settings, chosen)}")


def check_sequences(model: EffectiveSettings) -> None:
    """Refuses lists of tensors where no exporter can make one."""
    settings = model.settings
    if not model.has("outputs", "capture", "opsets"):
        return
    early = [opset for opset in settings.opsets if opset < _SEQUENCES_SINCE]
    for index, table in enumerate(settings.outputs):
        if table.kind != "sequence":
            continue
        path = ("outputs", index, "kind")
        if settings.capture != "script":
            message = "a sequence needs capture = 'script': a trace and dynamo put out each item"
            model.add_problem(path, message)
        elif early:
            since = f"ONNX has sequences since opset {_SEQUENCES_SINCE}"
            model.add_problem(path, f"{since}, not at {format_opsets(early)}")


def resolve_options(model: EffectiveSettings) -> dict[str, Plain]:
    """The options that were said, by their own names; those of overrides are checked, too."""
    options = list_explicit_values(model.settings.options)
    if model.has("exporter", "capture", "opsets", "overrides"):
        _check_options(model, ("options",), options, None)
        for index, table in enumerate(model.settings.overrides):
            place: KeyPath = ("overrides", index, "options")
            _check_options(model, place, list_explicit_values(table.options), table.opset)
    return options


def _check_options(
    model: EffectiveSettings,
    place: KeyPath,
    options: Mapping[str, Plain],
    opsets: tuple[int, ...] | None,
) -> None:
    """Refuses options that no exporter takes which makes one of these opsets."""
    in_use = {
        exporter
        for variant in split_variants(model.settings)
        if opsets is None or not set(opsets).isdisjoint(variant.settings.opsets)
        for exporter in list_exporters(_within(variant.settings, opsets))
    }
    for key in options:
        takers = [name for name, known in EXPORTER_OPTIONS.items() if key in known]
        if in_use and in_use.isdisjoint(takers):
            model.add_problem((*place, key), _wrong_exporter(key, in_use, takers))
    if "export_params" in options and not options["export_params"]:
        for key in _FOLDING:
            if options.get(key):
                message = "computes new weights from those that `export_params = false` leaves out"
                model.add_problem((*place, key), message)


def _within(settings: Settings, opsets: tuple[int, ...] | None) -> Settings:
    if opsets is None:
        return settings
    kept = tuple(opset for opset in settings.opsets if opset in opsets)
    return settings.model_copy(update={"opsets": kept})


def list_exporters(settings: Settings) -> frozenset[str]:
    """The exporters that make the model's opsets."""
    return frozenset(choose_exporter(settings, opset) for opset in settings.opsets)


def choose_exporter(settings: Settings, opset: int) -> ExporterName:
    """The exporter that makes one opset of the model."""
    chosen = _chosen(settings)
    if chosen:
        return chosen
    return "dynamo" if opset >= _DYNAMO_SINCE else "torchscript"


def _chosen(settings: Settings) -> ExporterName | None:
    """The exporter of all opsets; None where `auto` takes one or the other."""
    if settings.exporter != "auto":
        return settings.exporter
    for name in EXPORTER_OPTIONS:
        if settings.capture in _CAPTURES[name]:
            return name
    return None


def _way_out(settings: Settings, chosen: ExporterName) -> str:
    if settings.exporter == "auto":
        return f"capture = '{settings.capture}' means {_TITLE[chosen]} for all opsets"
    return "exporter = 'auto' takes dynamo above"


def _wrong_exporter(key: str, in_use: Iterable[str], takers: Iterable[str]) -> str:
    present = join_words(_TITLE[name] for name in sorted(in_use))
    other = join_words(_TITLE[name] for name in takers)
    since = (
        f"from opset {_DYNAMO_SINCE} up" if other == "dynamo" else f"below opset {_DYNAMO_SINCE}"
    )
    return f"{present} does not take '{key}'; {other} does, which 'auto' uses {since}"
