"""Models that generate: the key `generate`, its interface, and the loop of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.keys import DECODER, ENCODER, Generate, Rollout
from exporter.manifest.rules.fills import format_dims
from exporter.manifest.rules.layers import EffectiveSettings, Layer
from exporter.manifest.rules.signature import NamedShape, resolve_dtype
from exporter.manifest.rules.validation import INTERFACE, ManifestFile, validate
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax.fields import MAX_COPIES, PLACEHOLDER
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath, quote

#: Keys that the exporter of transformers does not have, and its options.
_OTHER_KEYS = ("capture", "constants", "containers", "custom_ops", "parameters", "rollout")
_OPTIONS = frozenset({"optimize", "external_data"})


def validate_interface(file: TomlFile, report: ProblemCollector) -> ManifestFile:
    """Return the interface of a model that generates as the defaults of a file without entries."""
    part = next((n for n in (DECODER, ENCODER) if isinstance(file.table.get(n), dict)), "")
    if not part:
        message = "needs the table [decoder] or [encoder]; run `exporter add` again"
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


def resolve_generate(model: EffectiveSettings) -> Generate | None:
    """Return the key of a model that generates, and report keys that do not apply to it."""
    settings = model.settings
    is_chosen = settings.exporter == "transformers"
    if not model.has_valid("exporter"):
        return None
    if not settings.generate:
        if is_chosen:
            message = "needs the key `generate`, such as `generate = { steps = 32 }`"
            model.add_problem(("exporter",), message)
        return None
    # An invalid path names a finished file, too.
    if not is_chosen and model.has_valid("artifact") and not settings.artifact:
        message = 'is for exporter = "transformers"; set it, or remove this key'
        model.add_problem(("generate",), message)
    names = [key for key in _OTHER_KEYS if model.has_valid(key) and getattr(settings, key)]
    paths: list[KeyPath] = [(key,) for key in names]
    if model.has_valid("inputs"):
        keys = [(index, each.model_fields_set) for index, each in enumerate(settings.inputs)]
        wrong = [(index, used & {"at", "optional", "scalar"}) for index, used in keys]
        paths += [("inputs", index, min(used)) for index, used in wrong if used]
    if model.has_valid("options"):
        options = settings.options.list_explicit()
        paths += [("options", key) for key in options if key not in _OPTIONS]
    if model.has_valid("overrides"):
        for index, override in enumerate(settings.overrides):
            used = override.model_fields_set & {"exporter", "capture", "options"}
            paths += [("overrides", index, key) for key in sorted(used)]
    for path in paths:
        message = "does not apply to `generate`, which transformers exports; remove it"
        model.add_problem(path, message)
    return settings.generate


def resolve_rollout(
    model: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]
) -> Rollout | None:
    """Return the rollout with a feed for each layer, and report feeds that do not fit."""
    table = model.settings.rollout
    generate = model.settings.generate
    if generate and generate.part != ENCODER:
        # The names are the templates of ONNX Runtime GenAI and Optimum.
        names = [item.name for item in model.settings.outputs if item.name.startswith("present.")]
        caches = {name: name.replace("present", "past_key_values", 1) for name in names}
        tokens = {"logits": "input_ids"}
        table = Rollout(steps=generate.steps, feeds=tokens | caches)
    named = {(shape.is_input, shape.name): shape for shape in shapes.values()}
    tables = {
        (is_input, each.name): each
        for is_input, items in ((True, model.settings.inputs), (False, model.settings.outputs))
        for each in items
    }
    feeds: dict[str, str] = {}
    selects_tokens = False
    for source, target in table.feeds.items() if table else ():
        path: KeyPath = ("rollout", "feeds", source)
        pairs = [(source, target)]
        if layer := PLACEHOLDER.search(source):
            # A feed with a placeholder stands for the layers that exist.
            numbers = map(str, range(MAX_COPIES))
            pairs = [(source.replace(layer[0], n), target.replace(layer[0], n)) for n in numbers]
            pairs = [
                each for each in pairs if (False, each[0]) in named and (True, each[1]) in named
            ]
        if not pairs:
            model.add_problem(path, f"no layer has both {quote(source)} and {quote(target)}")
        for one, other in pairs:
            keys = [(False, one), (True, other)]
            missing = [key for key in keys if key not in named]
            if missing:
                is_input, name = missing[0]
                known = [each for kind, each in named if kind == is_input]
                kind = "input" if is_input else "output"
                text = f"no {kind} has the name {quote(name)}{suggest_name(name, known)}"
                model.add_problem(path, text)
                continue
            dtypes = [resolve_dtype(model.settings, tables[key]) for key in keys]
            ranks = [len(named[key].dims) for key in keys]
            is_greedy = "float" in dtypes[0] and "int" in dtypes[1]
            selects_tokens |= is_greedy
            if other in feeds.values():
                model.add_problem(path, f"{quote(other)} gets an output already; remove one feed")
            elif dtypes[0] != dtypes[1] and not is_greedy:
                text = f"{quote(one)} is {dtypes[0]}, and {quote(other)} is {dtypes[1]}"
                model.add_problem(path, f"{text}; feed an output of the same dtype")
            elif ranks[0] - is_greedy != ranks[1]:
                shown = [format_dims(named[key].dims) for key in keys]
                text = f"{quote(one)} {shown[0]} does not fit {quote(other)} {shown[1]}"
                model.add_problem(path, f"{text}; feed an output with these dimensions")
            feeds[one] = other
    if model.settings.tokens is not None and not selects_tokens:
        message = "no loop selects tokens; add `generate`, or a `rollout` that feeds logits"
        model.add_problem(("tokens",), message)
    return Rollout(steps=table.steps, feeds=feeds) if table and feeds else None
