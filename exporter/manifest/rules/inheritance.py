"""Entries that extend others: the layers of each, and the problems of a parent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from exporter.core.errors import Problem, suggest_name
from exporter.manifest.rules import generate
from exporter.manifest.rules.layers import Layer
from exporter.manifest.rules.validation import INTERFACE, ManifestFile
from exporter.manifest.schema.entry import ModelEntry, Settings
from exporter.manifest.syntax.toml_file import ProblemCollector
from exporter.manifest.syntax.values import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedEntry:
    """An entry with the `[defaults]` of its file."""

    id: str
    own_layer: Layer
    defaults: Layer

    @property
    def parent(self) -> str:
        """The ID that the entry extends, or ""."""
        table = self.own_layer.table
        return table.extends if isinstance(table, ModelEntry) else ""


#: Entries of a chain of `extends`, because each one is merged with all others of its chain.
MAX_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class InheritanceGraph:
    """Every entry of every file."""

    entries: list[InheritedEntry] = field(default_factory=list)
    _by_id: dict[str, InheritedEntry] = field(default_factory=dict)
    _unreadable: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    _interfaces: dict[str, Layer] = field(default_factory=dict)
    """The inputs, outputs and axes of models that generate, by the name of the file."""

    def add(self, file: ManifestFile) -> None:
        if file.file.name.endswith(INTERFACE):
            self._interfaces[file.file.name] = file.defaults
        self._unreadable.update(file.unreadable)
        for id, layer in file.entries.items():
            entry = InheritedEntry(id=id, own_layer=layer, defaults=file.defaults)
            self.entries.append(entry)
            self._by_id.setdefault(id, entry)

    def add_interfaces(
        self, inherited: InheritedEntry, report: ProblemCollector
    ) -> Iterable[Layer]:
        """Return the layers of an entry, with the interface of a model that generates."""
        layers = self.list_layers(inherited, report)
        if not any(layer.table.generate for layer in layers):
            return layers
        return generate.add_interfaces(layers, self._interfaces, report)

    def list_layers(
        self, inherited: InheritedEntry, report: ProblemCollector, children: tuple[str, ...] = ()
    ) -> Sequence[Layer]:
        """Return the layers, lowest first: `[defaults]`, the layers of the parent, the entry.

        `children` are the entries that inherit from it, to detect cycles.
        """
        children = (*children, inherited.id)
        if not inherited.parent and "extends" not in inherited.own_layer.broken:
            return [inherited.defaults, inherited.own_layer]
        parent = self._by_id.get(inherited.parent)
        is_cycle, is_short = inherited.parent in children, len(children) < MAX_ENTRIES
        if parent is not None and not is_cycle and is_short:
            return [
                inherited.defaults,
                *self.list_layers(parent, report, children),
                inherited.own_layer,
            ]
        if "extends" not in inherited.own_layer.broken:
            cycle = children[children.index(inherited.parent) :] if is_cycle else ()
            self._report_parent(inherited, cycle, children[0], report)
        # Any required key may be in the unreadable parent, so none counts as missing.
        empty = Settings.model_construct(set())
        unknown = replace(
            inherited.own_layer, table=empty, broken=dict.fromkeys(Settings.required, ())
        )
        return [inherited.defaults, unknown, inherited.own_layer]

    def _report_parent(
        self, inherited: InheritedEntry, cycle: tuple[str, ...], last: str, report: ProblemCollector
    ) -> None:
        """Report why an entry cannot extend its parent.

        `cycle`: The entries that extend each other, if they do.
        `last`: The end of the chain of entries.
        """
        name = inherited.parent
        if cycle:
            first = cycle.index(min(cycle))  # each entry of the cycle reports the same problem
            text = " -> ".join((*cycle[first:], *cycle[: first + 1]))
            message = f"is a cycle: {text}; remove one `extends`"
            report.add(_build_problem(self._by_id[cycle[first]], message))
        elif name in self._by_id:
            message = f"is in a chain of more than {MAX_ENTRIES}; extend an earlier entry"
            report.add(_build_problem(self._by_id[last], message))
        elif name in self._unreadable:
            for problem in self._unreadable[name]:
                report.add(problem)
        else:
            hint = suggest_name(name, self._by_id)
            report.add(_build_problem(inherited, f"no model has the ID {quote(name)}{hint}"))


def _build_problem(inherited: InheritedEntry, message: str) -> Problem:
    return inherited.own_layer.file.build_problem((*inherited.own_layer.path, "extends"), message)
