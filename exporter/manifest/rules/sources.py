"""Resolve the source of a model: weights, finished files, dependencies.

A saved model belongs to one exporter: an `ExportedProgram` (`.pt2`) to dynamo, a TorchScript module
(`.pt`, `.jit`) to TorchScript. An `artifact` and an ONNX file belong to none, because they are not
exported. The worker applies the names of the weights after it has built the model.
"""

from __future__ import annotations

import posixpath
from functools import partial

from exporter.core.frozen_model import Plain
from exporter.manifest.resolved.keys import Caller
from exporter.manifest.resolved.model import (
    ModelSpec,
    ParameterNames,
    StateNames,
)
from exporter.manifest.rules.layers import (
    ONNX_FILE,
    SAVED_MODELS,
    EffectiveSettings,
    split_variants,
)
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax.values import (
    CAPTURES,
    EXPORTER_TITLES,
    NATIVE_OPSETS,
    REQUESTABLE_OPSETS,
    ExporterName,
    KeyPath,
    choose_exporter,
    find_common_exporter,
    format_key,
    format_opsets,
    join_words,
    quote,
)

#: ONNX has sequences from this opset.
_FIRST_SEQUENCE_OPSET = 11

#: Options of both exporters.
COMMON_OPTIONS = ("export_params", "external_data", "keep_initializers_as_inputs", "verbose")
#: The options of each exporter, as of torch 2.13 to 2.15.
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
#: `torch.onnx.TrainingMode` by the mode of the manifest; TorchScript's exporter sets the mode.
TRAINING_MODES = {"eval": "EVAL", "train": "TRAINING", "keep": "PRESERVE"}
#: Options that only the writer of the file applies.
_WRITER_OPTIONS: dict[ExporterName, tuple[str, ...]] = {
    "dynamo": ("external_data", "custom_opsets"),
    "torchscript": ("external_data",),
}


def list_torch_options(spec: ModelSpec, exporter: ExporterName) -> dict[str, Plain]:
    """Return the arguments of `torch.onnx.export` beside the call, the names and the opset."""
    names = EXPORTER_OPTIONS[exporter] - {*_WRITER_OPTIONS[exporter]}
    options: dict[str, Plain] = (
        {"verbose": False} if exporter == "dynamo" else {"training": TRAINING_MODES[spec.mode]}
    )
    options |= {name: value for name, value in spec.options.items() if name in names}
    if spec.weights_are_inputs:
        options |= WEIGHTS_AS_INPUTS[exporter] | {"export_params": True}
    return options


def check_exporter(entry: EffectiveSettings) -> None:
    """Report opsets that the exporter cannot write, and captures of the other exporter."""
    for variant in split_variants(entry):
        settings = variant.settings
        exporter = find_common_exporter(settings.exporter, settings.capture)
        if exporter is None:
            continue
        title = EXPORTER_TITLES[exporter]
        if settings.capture and settings.capture not in CAPTURES[exporter]:
            captures = join_words((f"'{capture}'" for capture in CAPTURES[exporter]), "or")
            message = f"'{settings.capture}' is not a capture of {title}; use {captures}"
            key_path = variant.find_path("capture") or entry.first_own_key("capture", "exporter")
            entry.add_problem(key_path, message)
            continue
        is_auto = settings.exporter == "auto"
        # Only an explicit 'dynamo' uses PyTorch's version converter below opset 18.
        first, last = (NATIVE_OPSETS if is_auto else REQUESTABLE_OPSETS)[exporter]
        unsupported = [opset for opset in settings.opsets if not first <= opset <= last]
        if unsupported:
            message = f"{title} supports opsets {first}..{last}, not {format_opsets(unsupported)}"
            key, fix = "exporter", "use exporter = 'auto', which selects dynamo above"
            if is_auto:
                key = "capture"
                fix = f"remove capture = '{settings.capture}', which selects {title} for all opsets"
            key_path = variant.find_path(key) or entry.first_own_key("opsets", key)
            entry.add_problem(key_path, f"{message}; {fix}")


def check_sequences(entry: EffectiveSettings) -> None:
    """Report lists of tensors among the outputs that no exporter can write."""
    settings = entry.settings
    if not entry.has_valid("outputs", "capture", "opsets"):
        return
    early = [opset for opset in settings.opsets if opset < _FIRST_SEQUENCE_OPSET]
    for index, table in enumerate(settings.outputs):
        if table.kind != "sequence":
            continue
        path = ("outputs", index, "kind")
        if settings.capture != "script":
            message = "a trace and dynamo return each item separately; use capture = 'script'"
            entry.add_problem(path, message)
        elif early:
            message = f"ONNX has sequences from opset {_FIRST_SEQUENCE_OPSET}"
            entry.add_problem(path, f"{message}, not at {format_opsets(early)}")


def list_exporters(settings: Settings) -> frozenset[ExporterName]:
    return frozenset(
        choose_exporter(settings.exporter, settings.capture, opset) for opset in settings.opsets
    )


def map_exporters(entry: EffectiveSettings) -> dict[int, ExporterName]:
    """Return the exporter of each opset, with the overrides of the entry."""
    return {
        opset: choose_exporter(each.settings.exporter, each.settings.capture, opset)
        for each in split_variants(entry)
        for opset in each.settings.opsets
    }


WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")


def resolve_weights(entry: EffectiveSettings) -> str:
    value = entry.settings.weights
    text = value if isinstance(value, str) else value.file
    if text and not text.endswith(WEIGHTS):
        if problem := entry.describe_folder(("weights",), text, WEIGHTS):
            entry.add_problem(("weights",), problem)
            return text
        expected = f"expected a file with a suffix of {', '.join(WEIGHTS)}"
        entry.add_problem(("weights",), f"{expected}, got {quote(text)}")
        return text
    if lacks_weights(entry):
        return entry.relate(("weights",), text)
    return entry.check_file(("weights",), text) if text else ""


def lacks_weights(entry: EffectiveSettings) -> bool:
    """Return whether initial values replace the file `weights`; see `ModelSpec.lacks_weights`."""
    value = entry.settings.weights
    text = value if isinstance(value, str) else value.file
    if not entry.project.uses_initial_weights or not text.endswith(WEIGHTS):
        return False
    name = posixpath.normpath(posixpath.join(entry.find_layer(("weights",)).folder, text))
    is_inside = not name.startswith(("../", "/")) and "\\" not in text and ":" not in text
    return is_inside and entry.lacks_ignored_file(name)


def resolve_weights_names(entry: EffectiveSettings) -> StateNames:
    value = entry.settings.weights
    return StateNames() if isinstance(value, str) else StateNames.from_fields(value)


def resolve_weights_hash(entry: EffectiveSettings) -> str:
    settings = entry.settings
    has_file = ("weights",) in entry.origins or settings.source.endswith((*SAVED_MODELS, ONNX_FILE))
    if settings.weights_sha256 and not has_file:
        message = "needs the key `weights`, or a saved model (.pt2, .pt, .jit, .onnx) as `source`"
        entry.add_problem(("weights_sha256",), message)
    return settings.weights_sha256


def resolve_parameters(entry: EffectiveSettings) -> ParameterNames | None:
    """Return the names of the weights, or None if they keep their names in the model."""
    match entry.settings.parameters:
        case None:
            return None
        case str() as template:
            return ParameterNames(template=template)
        case dict() as patterns:
            return ParameterNames(patterns=patterns)
        case tuple() as names:
            owners: dict[str, KeyPath] = {}
            if entry.has_valid("inputs", "outputs"):
                for key in ("inputs", "outputs"):
                    for index, table in enumerate(getattr(entry.settings, key)):
                        owners[table.name] = (key, index)
            for index, name in enumerate(names):
                if owner := owners.get(name):
                    message = f"{quote(name)} is already the name of {format_key(owner)}"
                    entry.add_problem(("parameters", index), message)
                owners.setdefault(name, ("parameters", index))
            return ParameterNames(names=names)


def resolve_depends(entry: EffectiveSettings) -> tuple[str, ...]:
    """Return the globs relative to the entry; report those without files."""
    return tuple(
        resolve_glob(entry, ("depends", index), text)
        for index, text in enumerate(entry.settings.depends)
    )


def resolve_glob(entry: EffectiveSettings, key_path: KeyPath, text: str) -> str:
    """Return a glob relative to the entry; report one without files."""
    # Python's `**` at the end matches only folders.
    pattern = f"{text}/*" if text.endswith("**") else text
    name = posixpath.normpath(posixpath.join(entry.find_layer(key_path).folder, pattern))
    if pattern.startswith("/") or "\\" in pattern or ":" in pattern:
        message = "expected a path relative to the manifest, with forward slashes"
        entry.add_problem(key_path, f"{message}, got {quote(pattern)}")
    elif name.startswith("../"):
        message = f"{quote(pattern)} is outside the project; use files inside it"
        entry.add_problem(key_path, message)
    elif not entry.project.is_revision and not any(
        file.is_file() for file in entry.project.root.glob(name)
    ):
        entry.add_problem(key_path, f"no file matches {quote(name)}; correct the glob")
    return posixpath.relpath(name, entry.own_layer.folder or ".")


def resolve_callers(entry: EffectiveSettings) -> tuple[Caller, ...]:
    """Return the callers with their functions and samples relative to the entry."""
    callers = []
    for index, table in enumerate(entry.settings.callers):
        key_path: KeyPath = ("callers", index)
        update = {
            name: entry.check_function((*key_path, name), text)
            for name, text in (("call", table.call), ("reference", table.reference))
            if text
        }
        resolve = entry.check_function if ".py:" in table.samples else partial(resolve_glob, entry)
        update["samples"] = resolve((*key_path, "samples"), table.samples)
        callers.append(table.model_copy(update=update))
    return tuple(callers)
