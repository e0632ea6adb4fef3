"""The rules of the keys `rollout` and `tokens`: each feed has an output and an input that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.core.errors import suggest_name
from exporter.core.text import pluralize
from exporter.manifest.resolved.keys import (
    COMPLETE,
    DECODER,
    DECODER_TOKENS,
    VECTORS,
    Rollout,
)
from exporter.manifest.rules.fills import format_dims
from exporter.manifest.rules.generate import NOT_FOR_GENERATE
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.repeated_tables import expand_layers
from exporter.manifest.rules.signature import resolve_dtype, resolve_shapes
from exporter.manifest.syntax.fields import PLACEHOLDER
from exporter.manifest.syntax.values import KeyPath, quote


def resolve(entry: EffectiveSettings) -> dict[str, Any]:
    """Return the rollout with a feed for each layer, and report feeds that do not fit."""
    if not entry.has_valid("inputs", "outputs", "rollout", "generate"):
        return {}
    table = _find_loop(entry)
    named = {(shape.is_input, shape.name): shape for shape in resolve_shapes(entry)}
    tables = {
        (is_input, each.name): each
        for is_input, items in ((True, entry.settings.inputs), (False, entry.settings.outputs))
        for each in items
    }
    feeds: dict[str, str] = {}
    selects_tokens = False
    if table:
        for source, target in table.feeds.items():
            key_path: KeyPath = ("rollout", "feeds", source)
            outputs = {name for is_input, name in named if not is_input}
            pairs = expand_layers(source, target, outputs)
            if PLACEHOLDER.search(source):
                pairs = [each for each in pairs if (True, each[1]) in named]
            if not pairs:
                entry.add_problem(
                    key_path, f"no layer has both {quote(source)} and {quote(target)}"
                )
            for one, other in pairs:
                keys = [(False, one), (True, other)]
                missing = [key for key in keys if key not in named]
                if missing:
                    is_input, name = missing[0]
                    known = [each for kind, each in named if kind == is_input]
                    kind = "input" if is_input else "output"
                    text = f"no {kind} has the name {quote(name)}{suggest_name(name, known)}"
                    entry.add_problem(key_path, text)
                    continue
                dtypes = [resolve_dtype(entry.settings, tables[key]) for key in keys]
                ranks = [len(named[key].dims) for key in keys]
                is_greedy = "float" in dtypes[0] and "int" in dtypes[1]
                selects_tokens |= is_greedy
                if other in feeds.values():
                    entry.add_problem(
                        key_path, f"{quote(other)} gets an output already; remove one feed"
                    )
                elif dtypes[0] != dtypes[1] and not is_greedy:
                    text = f"{quote(one)} is {dtypes[0]}, and {quote(other)} is {dtypes[1]}"
                    entry.add_problem(key_path, f"{text}; feed an output of the same dtype")
                elif ranks[0] - is_greedy != ranks[1]:
                    shown = [format_dims(named[key].dims) for key in keys]
                    text = f"{quote(one)} {shown[0]} does not fit {quote(other)} {shown[1]}"
                    entry.add_problem(key_path, f"{text}; feed an output with these dimensions")
                feeds[one] = other
        _check_constants(entry, table, feeds, [name for is_input, name in named if is_input])
    if entry.settings.tokens is not None and not selects_tokens:
        message = "no loop selects tokens; add `generate`, or a `rollout` that feeds logits"
        entry.add_problem(("tokens",), message)
    return {"rollout": table.model_copy(update={"feeds": feeds}) if table and feeds else None}


def _check_constants(
    entry: EffectiveSettings, table: Rollout, feeds: Mapping[str, str], inputs: Sequence[str]
) -> None:
    """Report values of each step for what is no input, or gets an output of the step before."""
    sources = {target: source for source, target in feeds.items()}
    for name, values in table.constants.items():
        key_path: KeyPath = ("rollout", "constants", name)
        if name not in inputs:
            text = f"no input has the name {quote(name)}{suggest_name(name, inputs)}"
            entry.add_problem(key_path, text)
        elif name in sources:
            text = f"{quote(name)} gets the output {quote(sources[name])} in each step"
            entry.add_problem(key_path, f"{text}; remove it here or in `feeds`")
        elif not isinstance(values, str) and len(values) != table.steps:
            text = f"has {pluralize(len(values), 'value')}, and `steps` is {table.steps}"
            entry.add_problem(key_path, f"{text}; write one for each step")


def _find_loop(entry: EffectiveSettings) -> Rollout | None:
    """Return the loop of the entry; that of a decoder that generates follows from its outputs."""
    table, generate = entry.settings.rollout, entry.settings.generate
    if generate and table and entry.has_valid("exporter"):
        entry.add_problem(("rollout",), NOT_FOR_GENERATE)
    # The decoder of a model with pictures gets vectors, and only the whole selects tokens.
    inputs = {item.name for item in entry.settings.inputs}
    if not generate or generate.part not in (DECODER, COMPLETE) or VECTORS in inputs:
        return table
    # The names are the templates of ONNX Runtime GenAI and Optimum.
    names = [item.name for item in entry.settings.outputs if item.name.startswith("present.")]
    caches = {name: name.replace("present", "past_key_values", 1) for name in names}
    tokens = DECODER_TOKENS if DECODER_TOKENS in inputs else "input_ids"
    return Rollout(steps=generate.steps, feeds={"logits": tokens} | caches)
