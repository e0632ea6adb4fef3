"""Choose the exporter of each opset, and check capture, opsets and options against it."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.frozen_model import Plain
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.model import ExporterName
from exporter.manifest.rules.overrides import Variant, split_variants
from exporter.manifest.rules.references import FUNCTIONS, References
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import list_explicit_values
from exporter.manifest.syntax.opsets import NATIVE_OPSETS, REQUESTABLE_OPSETS, format_opsets
from exporter.manifest.syntax.values import KeyPath, join_words

#: The names of the exporters in messages.
EXPORTER_TITLES: dict[str, str] = {"dynamo": "dynamo", "torchscript": "TorchScript"}
_CAPTURES = {"dynamo": ("export", "strict", "draft"), "torchscript": ("trace", "script")}
_FIRST_DYNAMO_OPSET = NATIVE_OPSETS["dynamo"][0]
#: ONNX has sequences from this opset.
_FIRST_SEQUENCE_OPSET = 11
#: ONNX has functions in files from this opset, with IR version 8.
_FIRST_FUNCTION_OPSET = 15

#: Options of both exporters.
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

#: Options that keep the weights unchanged with `export_params = false`: folding and optimization
#: compute new weights, and TorchScript merges equal weights unless they are inputs.
WEIGHTS_AS_INPUTS: dict[ExporterName, dict[str, Plain]] = {
    "dynamo": {"optimize": False},
    "torchscript": {
        "keep_initializers_as_inputs": True,
        "do_constant_folding": False,
        "training": "PRESERVE",
    },
}
_FOLDING_OPTIONS = ("optimize", "do_constant_folding")


def check_exporter(model: EffectiveSettings) -> None:
    """Report opsets that the exporter cannot write, and captures of the other exporter."""
    if model.has_valid("exporter", "capture", "overrides", "opsets"):
        for variant in split_variants(model.settings):
            _check_variant(model, variant)


def _check_variant(model: EffectiveSettings, variant: Variant) -> None:
    settings = variant.settings
    exporter = _find_common_exporter(settings)
    if exporter is None:
        return
    title = EXPORTER_TITLES[exporter]
    if settings.capture and settings.capture not in _CAPTURES[exporter]:
        captures = join_words((f"'{capture}'" for capture in _CAPTURES[exporter]), "or")
        message = f"'{settings.capture}' is not a capture of {title}; use {captures}"
        path = variant.find_path("capture") or model.first_own_key("capture", "exporter")
        model.add_problem(path, message)
        return
    # Only an explicit 'dynamo' uses PyTorch's version converter below opset 18.
    first, last = (NATIVE_OPSETS if settings.exporter == "auto" else REQUESTABLE_OPSETS)[exporter]
    unsupported = [opset for opset in settings.opsets if not first <= opset <= last]
    if unsupported:
        message = f"{title} supports opsets {first}..{last}, not {format_opsets(unsupported)}"
        key = "exporter" if settings.exporter != "auto" else "capture"
        fix = "use exporter = 'auto', which selects dynamo above"
        if settings.exporter == "auto":
            fix = f"remove capture = '{settings.capture}', which selects {title} for all opsets"
        path = variant.find_path(key) or model.first_own_key("opsets", key)
        model.add_problem(path, f"{message}; {fix}")


def check_sequences(model: EffectiveSettings) -> None:
    """Report lists of tensors among the outputs that no exporter can write."""
    settings = model.settings
    if not model.has_valid("outputs", "capture", "opsets"):
        return
    early = [opset for opset in settings.opsets if opset < _FIRST_SEQUENCE_OPSET]
    for index, table in enumerate(settings.outputs):
        if table.kind != "sequence":
            continue
        path = ("outputs", index, "kind")
        if settings.capture != "script":
            message = "a trace and dynamo return each item separately; use capture = 'script'"
            model.add_problem(path, message)
        elif early:
            message = f"ONNX has sequences from opset {_FIRST_SEQUENCE_OPSET}"
            model.add_problem(path, f"{message}, not at {format_opsets(early)}")


def resolve_options(model: EffectiveSettings, references: References) -> dict[str, Plain]:
    """Return the options of the entry, after a check of these and of those of its overrides."""
    options = list_explicit_values(model.settings.options)
    is_exported = model.has_valid("artifact") and not model.settings.artifact
    if is_exported and model.has_valid("exporter", "capture", "opsets", "overrides"):
        _check_options(model, ("options",), options, None)
        for index, table in enumerate(model.settings.overrides):
            path: KeyPath = ("overrides", index, "options")
            _check_options(model, path, list_explicit_values(table.options), table.opset)
    return references.check_module_types(model, ("options",), options)


def _check_options(
    model: EffectiveSettings,
    path: KeyPath,
    options: Mapping[str, Plain],
    opsets: tuple[int, ...] | None,
) -> None:
    """Report options that the exporters of these opsets do not have."""
    exporters = {
        opset: choose_exporter(variant.settings, opset)
        for variant in split_variants(model.settings)
        for opset in variant.settings.opsets
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
            message += f"selects {limit} opset {_FIRST_DYNAMO_OPSET}"
            model.add_problem((*path, key), message)
    early = [
        opset
        for opset, exporter in exporters.items()
        if exporter == "torchscript" and opset < _FIRST_FUNCTION_OPSET
    ]
    if options.get(FUNCTIONS) and early and not (opsets is None and _has_override(model)):
        message = f"ONNX has functions from opset {_FIRST_FUNCTION_OPSET}, not at "
        message += f"{format_opsets(early)}; write it in [[models.ID.overrides]] with "
        message += f'opset = ">={_FIRST_FUNCTION_OPSET}"'
        model.add_problem((*path, FUNCTIONS), message)
    if "export_params" in options and not options["export_params"]:
        for key in _FOLDING_OPTIONS:
            if options.get(key):
                message = "computes new weights, but `export_params = false` removes them from the"
                model.add_problem((*path, key), f"{message} file; remove one of the two")


def _has_override(model: EffectiveSettings) -> bool:
    """Return whether an override changes the modules that become functions."""
    tables = (table.options for table in model.settings.overrides)
    return any(FUNCTIONS in list_explicit_values(table) for table in tables)


def list_exporters(settings: Settings) -> frozenset[str]:
    """Return the exporters of the model's opsets."""
    return frozenset(choose_exporter(settings, opset) for opset in settings.opsets)


def choose_exporter(settings: Settings, opset: int) -> ExporterName:
    """Return the exporter of one opset of the model."""
    exporter = _find_common_exporter(settings)
    if exporter:
        return exporter
    return "dynamo" if opset >= _FIRST_DYNAMO_OPSET else "torchscript"


def _find_common_exporter(settings: Settings) -> ExporterName | None:
    """Return the exporter of all opsets, or None if `auto` selects it for each opset."""
    if settings.exporter != "auto":
        return settings.exporter
    for name in EXPORTER_OPTIONS:
        if settings.capture in _CAPTURES[name]:
            return name
    return None
