"""The rules of the key `generate`, its interface, and keys that do not apply to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from exporter.core.text import join_names
from exporter.manifest.resolved.keys import COMPLETE, DECODER, PARTS
from exporter.manifest.rules.layers import EffectiveSettings, Layer
from exporter.manifest.rules.validation import INTERFACE, ManifestFile, validate
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath

#: Keys that the exporter of transformers does not have, and its options.
_OTHER_KEYS = ("capture", "constants", "containers", "custom_ops", "parameters")
_OPTIONS = frozenset({"optimize", "external_data"})
NOT_FOR_GENERATE = "does not apply to `generate`, which transformers exports; remove it"


def validate_interface(file: TomlFile, report: ProblemCollector) -> ManifestFile:
    """Return the interface of a model that generates as the defaults of a file without entries."""
    part = next((n for n in PARTS if isinstance(file.table.get(n), dict)), "")
    if not part:
        tables = join_names([f"[{each}]" for each in PARTS])
        message = f"needs one of the tables {tables}; run `exporter add` again"
        report.add(file.build_problem((), message))
        part, file = DECODER, replace(file, table={DECODER: {}})
    table, removed = validate(Settings, file, (part,), report)
    broken = {str(key[0]): problems for key, problems in removed.items()}
    layer = Layer(file=file, path=(part,), table=table, broken=broken)
    return ManifestFile(file=file, defaults=layer, entries={}, unreadable={})


def add_interfaces(
    layers: Sequence[Layer], interfaces: Mapping[str, Layer], report: ProblemCollector
) -> Iterator[Layer]:
    """Yield the layers of an entry, with its interface below the one that sets `generate`."""
    for layer in layers:
        if layer.table.generate:
            name = layer.file.name.rpartition("/")[0] + f"/{layer.path[-1]}{INTERFACE}"
            part, interface = layer.table.generate.part, interfaces.get(name)
            if interface is None or interface.path != (part,):
                needed = f"{name} with the table [{part}]"
                message = f"needs {needed}; run `exporter add {layer.table.source}`"
                report.add(layer.file.build_problem((*layer.path, "generate"), message))
                table = Settings.model_construct(set())
                interface = replace(layer, table=table, broken={"inputs": (), "outputs": ()})
            yield interface
        yield layer


def resolve(entry: EffectiveSettings) -> dict[str, Any]:
    """Return the key of a model that generates, and report keys that do not apply to it."""
    settings = entry.settings
    if not (settings.generate and entry.has_valid("generate", "exporter")):
        return {"generate": None}
    # An invalid path names a finished file, too.
    is_whole, is_chain = settings.generate.part == COMPLETE, bool(settings.chain)
    if is_whole and not is_chain and entry.has_valid("chain"):
        message = 'part = "whole" is for the chain of the other parts; add `chain`'
        entry.add_problem(("generate",), message)
    is_export = entry.has_valid("artifact") and not settings.artifact and not is_whole
    if settings.exporter != "transformers" and is_export:
        message = 'is for exporter = "transformers"; set it, or remove this key'
        entry.add_problem(("generate",), message)
    names = [key for key in _OTHER_KEYS if entry.has_valid(key) and getattr(settings, key)]
    paths: list[KeyPath] = [(key,) for key in names]
    if entry.has_valid("inputs"):
        keys = [(index, each.model_fields_set) for index, each in enumerate(settings.inputs)]
        wrong = [(index, used & {"at", "optional", "scalar"}) for index, used in keys]
        paths += [("inputs", index, min(used)) for index, used in wrong if used]
    if entry.has_valid("options"):
        options = settings.options.list_explicit()
        paths += [("options", key) for key in options if key not in _OPTIONS]
    if entry.has_valid("overrides"):
        for index, override in enumerate(settings.overrides):
            used = override.model_fields_set & {"exporter", "capture", "options"}
            paths += [("overrides", index, key) for key in sorted(used)]
    for key_path in paths:
        entry.add_problem(key_path, NOT_FOR_GENERATE)
    return {"generate": settings.generate}
