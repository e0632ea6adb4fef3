"""The rules of the keys `chain` and `feeds`: each link is an entry, and all values fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.core.errors import suggest_name
from exporter.core.text import join_names
from exporter.manifest.resolved.call import Input, TensorSpec
from exporter.manifest.resolved.keys import COMPLETE
from exporter.manifest.resolved.model import Link, ModelSpec, Output
from exporter.manifest.rules.fills import format_dims
from exporter.manifest.rules.invalid_entries import make_invalid_spec
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.repeated_tables import expand_layers
from exporter.manifest.syntax.values import KeyPath, format_opsets, quote

#: Keys of one file, which a chain does not have.
_FILE_KEYS = ("artifact", "generate", "parameters", "passes", "metadata", "callers")
#: Keys of an export, which it does not have either; `overrides` can have them, too.
_EXPORT_KEYS = ("exporter", "capture", "options")
#: Keys that a chain can only inherit, and then ignores.
KEYS_OF_LINKS = (*_FILE_KEYS, *_EXPORT_KEYS, "parent")
_NOT_FOR_CHAIN = "does not apply to a chain, but to its links, which have the files; remove it"


def resolve_chains(
    entries: Sequence[EffectiveSettings], specs: Sequence[ModelSpec]
) -> list[ModelSpec]:
    """Return the specs, those of chains with their links, and report links that do not fit."""
    by_id = {spec.id: spec for spec in specs}
    chains = {entry.id for entry in entries if entry.settings.chain}
    return [
        _resolve_chain(entry, spec, by_id, chains)
        if entry.settings.chain or entry.settings.feeds
        else spec
        for entry, spec in zip(entries, specs, strict=True)
    ]


def _resolve_chain(
    entry: EffectiveSettings,
    spec: ModelSpec,
    specs: Mapping[str, ModelSpec],
    chains: Collection[str],
) -> ModelSpec:
    if not entry.has_valid("chain", "feeds"):
        return spec
    count = len(entry.report)
    if not entry.settings.chain:
        entry.add_problem(("feeds",), "is for a chain of entries; add `chain`, or remove this key")
    else:
        _check_other_keys(entry)
        links = list(_find_links(entry, spec, specs, chains))
        is_complete = len(links) == len(entry.settings.chain)
        if is_complete and not spec.problems and not any(link.problems for link in links):
            update = {"chain": _Wiring(entry, spec, links).resolve(), **_drop_other_keys(spec)}
            spec = spec.model_copy(update=update)
    return make_invalid_spec(entry) if len(entry.report) > count else spec


def _drop_other_keys(spec: ModelSpec) -> dict[str, Any]:
    """Return the defaults of keys that a chain does not have, and that it may have inherited."""
    keys = ModelSpec.model_fields
    unset = {
        key: keys[key].get_default(call_default_factory=True)
        for key in KEYS_OF_LINKS
        if key != "generate" or not (spec.generate and spec.generate.part == COMPLETE)
    }
    without: dict[str, Any] = {"exporter": None, "capture": None, "options": {}}
    overrides = tuple(each.model_copy(update=without) for each in spec.overrides)
    return {**unset, "overrides": overrides}


def _check_other_keys(entry: EffectiveSettings) -> None:
    """Report keys that the entry itself sets, and that describe an export or one file."""
    settings = entry.settings
    paths: list[KeyPath] = [
        (key,)
        for key in _FILE_KEYS
        if entry.has_valid(key) and getattr(settings, key) and entry.is_own((key,))
        if key != "generate" or (settings.generate and settings.generate.part != COMPLETE)
    ]
    paths += [
        (key,) for key in ("exporter", "capture") if entry.origins.get((key,)) is entry.own_layer
    ]
    if entry.has_valid("options"):
        options = settings.options.list_explicit()
        paths += [("options", key) for key in options if entry.is_own(("options", key))]
    if entry.has_valid("overrides") and entry.is_own(("overrides",)):
        for index, table in enumerate(settings.overrides):
            used = table.model_fields_set & {*_EXPORT_KEYS}
            paths += [("overrides", index, key) for key in sorted(used)]
    for key_path in paths:
        entry.add_problem(key_path, _NOT_FOR_CHAIN)


def _find_links(
    entry: EffectiveSettings,
    spec: ModelSpec,
    specs: Mapping[str, ModelSpec],
    chains: Collection[str],
) -> Iterator[ModelSpec]:
    """Yield the entries of the chain that can be links; report the others."""
    names = entry.settings.chain
    if len(names) < 2:
        entry.add_problem(("chain",), "needs at least two links; without them, remove this key")
    for index, name in enumerate(names):
        link = specs.get(name)
        if problem := _find_link_problem(entry, index, link, specs.keys() - chains, chains):
            entry.add_problem(("chain", index), problem)
        elif link is not None:
            for text in _find_missing_cells(link, spec):
                entry.add_problem(("chain", index), text)
            yield link


def _find_link_problem(
    entry: EffectiveSettings,
    index: int,
    link: ModelSpec | None,
    others: Iterable[str],
    chains: Collection[str],
) -> str:
    """Return why an entry cannot be a link, or ""."""
    name = entry.settings.chain[index]
    if name == entry.id:
        return "is this entry itself; name the entries of its parts"
    if link is None:
        return f"no model has the ID {quote(name)}{suggest_name(name, others)}"
    if name in chains:
        return f"{quote(name)} is a chain itself; name its links"
    if name in entry.settings.chain[:index]:
        return f"{quote(name)} is a link already; write another entry that `extends` it"
    if any(link.resolve_cell(opset).weights_are_inputs for opset in link.opsets):
        return f"{quote(name)} has its weights as inputs, which nothing feeds; export them"
    optional = [item.name for item in link.inputs if item.optional]
    if optional:
        text = f"{quote(name)} has the optional input {join_names(optional)}; "
        return f"{text}name an entry that always gets it"
    if link.problems:
        return f"{quote(name)} is invalid, and so is each chain with it; correct that entry"
    return ""


def _find_missing_cells(link: ModelSpec, spec: ModelSpec) -> Iterator[str]:
    """Yield the opsets and devices of the chain that the link lacks."""
    if opsets := [opset for opset in spec.opsets if opset not in link.opsets]:
        yield (
            f"{quote(link.id)} has no file of opset {format_opsets(opsets)}; add it there, or "
            "remove it from this entry"
        )
    if devices := [name for name in spec.devices if name not in link.devices]:
        yield (
            f"{quote(link.id)} is not proved on {join_names(devices)}; add it to its `devices`, "
            "or remove it from this entry"
        )


@dataclass(slots=True)
class _Value:
    """A value of the chain: an input of the whole, or an output of a link."""

    name: str
    tensor: TensorSpec
    link: int = -1
    """The position of the link that computes it."""


class _Wiring:
    """Connects the links of a valid chain."""

    def __init__(
        self, entry: EffectiveSettings, spec: ModelSpec, links: Sequence[ModelSpec]
    ) -> None:
        self._entry = entry
        self._spec = spec
        self._links = links
        self._inputs = {item.name: _Value(item.name, item) for item in spec.inputs}
        self._values = {
            (index, item.name): _Value(f"{link.id}.{item.name}", item, index)
            for index, link in enumerate(links)
            for item in link.outputs
        }
        #: The feeds of links, by position and input, and of outputs of the whole, by name.
        self._of_links: dict[tuple[int, str], str] = {}
        self._of_outputs: dict[str, str] = {}
        self._used: set[str] = set()
        #: The feeds with a number in place of `{layer}`, and their keys in the manifest.
        self._feeds: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def resolve(self) -> tuple[Link, ...]:
        self._sort_feeds()
        sources = {
            (index, item.name): value
            for index, link in enumerate(self._links)
            for item in link.inputs
            if (value := self._find_source(index, item))
        }
        results = {output.name: self._find_result(output) for output in self._spec.outputs}
        self._check_use(results)
        names: dict[str, str] = {}
        for output, value in results.items():
            if value and value.name in names:
                text = f"{quote(value.name)} is the output {quote(names[value.name])} already"
                path = self._path_of_output(output)
                self._entry.add_problem(path, f"{text}; feed each output from another one")
            elif value:
                names[value.name] = output
        declared = {item.name for item in (*self._spec.inputs, *self._spec.outputs)}
        for value in self._values.values():
            if value.name in declared:  # also one of links such as `a` and `a.b`
                text = f"{quote(value.name)} is an output of a link, too; choose another name"
                self._entry.add_problem(("chain",), text)
            declared.add(value.name)
        return tuple(
            Link(
                id=link.id,
                inputs={
                    item.name: names.get(value.name, value.name)
                    for item in link.inputs
                    if (value := sources.get((index, item.name)))
                },
                outputs={
                    item.name: names.get(name := f"{link.id}.{item.name}", name)
                    for item in link.outputs
                },
            )
            for index, link in enumerate(self._links)
        )

    def _split(self, text: str) -> tuple[int, str] | None:
        """Return the position of the link in `link.name` and the name, or None."""
        matches = [
            (index, text.removeprefix(f"{link.id}."))
            for index, link in enumerate(self._links)
            if text.startswith(f"{link.id}.")
        ]
        return min(matches, key=lambda each: len(each[1]), default=None)

    def _sort_feeds(self) -> None:
        """Report targets of feeds that do not exist."""
        outputs = {item.name for item in self._spec.outputs}
        known_targets = {f"{link.id}.{each.name}" for link in self._links for each in link.inputs}
        for key, source in self._entry.settings.feeds.items():
            pairs = expand_layers(key, source, known_targets | outputs) or [(key, source)]
            self._feeds |= pairs
            self._keys |= {target: key for target, _ in pairs}
        for target in self._feeds:
            key_path = self._path_of_feed(target)
            position = self._split(target)
            if position is None and target in outputs:
                self._of_outputs[target] = target
            elif position is None:
                hint = suggest_name(target, [*known_targets, *outputs])
                text = f"{quote(target)} is no input of a link and no output of this entry{hint}"
                self._entry.add_problem(key_path, text)
            else:
                index, name = position
                known = [item.name for item in self._links[index].inputs]
                if name in known:
                    self._of_links[index, name] = target
                else:
                    text = f"{quote(self._links[index].id)} has no input {quote(name)}"
                    self._entry.add_problem(key_path, f"{text}{suggest_name(name, known)}")

    def _find_source(self, index: int, item: Input) -> _Value | None:
        """Return the value that an input of a link gets."""
        link = self._links[index]
        target = f"{link.id}.{item.name}"
        if (index, item.name) not in self._of_links:
            value = self._inputs.get(item.name)
            if value is None:
                known = [
                    each.name
                    for each in (*self._inputs.values(), *self._values.values())
                    if each.link < index and not _find_misfit(each.tensor, item)
                ]
                hint = f', such as `feeds = {{ "{target}" = "{known[-1]}" }}`' if known else ""
                text = f"nothing feeds the input {quote(item.name)} of {quote(link.id)}: this entry"
                text += f" has no input of that name; add a feed{hint}"
                self._entry.add_problem(("chain", index), text)
                return None
            self._used.add(value.name)
            if problem := _find_misfit(value.tensor, item):
                text = f"{quote(link.id)} gets the input {quote(item.name)} of this entry"
                self._entry.add_problem(("chain", index), f"{text}: {problem}")
            return value
        value = self._find_value(target)
        if value is None:
            return None
        self._used.add(value.name)
        if value.link >= index:
            later = "itself" if value.link == index else "a later link"
            text = f"{quote(link.id)} gets an output of {later}; feed one of an earlier link"
            self._entry.add_problem(self._path_of_feed(target), text)
        elif problem := _find_misfit(value.tensor, item):
            self._entry.add_problem(self._path_of_feed(target), problem)
        return value

    def _find_value(self, target: str) -> _Value | None:
        """Return the value that a feed names; report a name that does not exist."""
        text = self._feeds[target]
        position = self._split(text)
        if position is not None:
            index, name = position
            if value := self._values.get(position):
                return value
            known = [item.name for item in self._links[index].outputs]
            problem = f"{quote(self._links[index].id)} has no output {quote(name)}"
            problem += suggest_name(name, known)
        elif text in self._inputs:
            return self._inputs[text]
        else:
            known = [*self._inputs, *(value.name for value in self._values.values())]
            problem = f"{quote(text)} is no output of a link and no input of this entry"
            problem += suggest_name(text, known)
        self._entry.add_problem(self._path_of_feed(target), problem)
        return None

    def _find_result(self, output: Output) -> _Value | None:
        """Return the output of a link that an output of the whole is."""
        path = self._path_of_output(output.name)
        if output.name in self._of_outputs:
            value = self._find_value(output.name)
            if value is not None and value.link < 0:
                text = f"{quote(value.name)} is an input of this entry; feed an output of a link"
                self._entry.add_problem(path, text)
                return None
        else:
            last = len(self._links) - 1
            value = self._values.get((last, output.name))
            if value is None:
                known = [each.name for each in self._links[-1].outputs]
                text = f"the last link {quote(self._links[-1].id)} has no output "
                text += f"{quote(output.name)}, but {join_names(known)}; add a feed, such as "
                text += f'`feeds = {{ {output.name} = "{self._links[-1].id}.{known[0]}" }}`'
                self._entry.add_problem(path, text)
        if value is not None:
            self._used.add(value.name)
            if problem := _find_misfit(value.tensor, output):
                self._entry.add_problem(path, problem)
        return value

    def _path_of_feed(self, target: str) -> KeyPath:
        return ("feeds", self._keys[target])

    def _path_of_output(self, name: str) -> KeyPath:
        if name in self._of_outputs:
            return self._path_of_feed(name)
        index = [item.name for item in self._spec.outputs].index(name)
        return ("outputs", index)

    def _check_use(self, results: Mapping[str, _Value | None]) -> None:
        """Report inputs of the whole and links that nothing uses."""
        if self._entry.report:
            return  # a wrong name is no use of the right one
        for index, item in enumerate(self._spec.inputs):
            if item.name not in self._used:
                text = f"no link gets the input {quote(item.name)}; remove it, or feed it"
                self._entry.add_problem(("inputs", index), text)
        for index, link in enumerate(self._links):
            if not any(f"{link.id}.{item.name}" in self._used for item in link.outputs):
                text = f"nothing uses an output of {quote(link.id)}; feed one, or remove the link"
                self._entry.add_problem(("chain", index), text)


def _find_misfit(given: TensorSpec, target: TensorSpec) -> str:
    """Return why a value cannot be that input or output, or ""."""
    one, other = quote(given.name), quote(target.name)
    if getattr(given, "optional", False):
        return f"{one} is optional, and {other} is not; remove `optional`"
    kinds = [getattr(each, "kind", "tensor") for each in (given, target)]
    if kinds[0] != kinds[1]:
        return f"{one} is a {kinds[0]}, and {other} is a {kinds[1]}; feed another output"
    if given.dtype != target.dtype:
        return f"{one} is {given.dtype}, and {other} is {target.dtype}; both need one dtype"
    pairs = list(zip(given.shape, target.shape, strict=False))
    has_other_size = any(
        isinstance(size, int) and isinstance(other_size, int) and size != other_size
        for size, other_size in pairs
    )
    if len(given.shape) != len(target.shape) or has_other_size:
        shapes = [format_dims(each.shape) for each in (given, target)]
        return f"{one} {shapes[0]} does not fit {other} {shapes[1]}; both need the same dimensions"
    return ""
