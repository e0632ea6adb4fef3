"""Find the layers of settings of each entry: the entry, its parents, and their `[defaults]`.

Unknown parents and cycles are reported. They only drop the settings of that parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from exporter.core.errors import Problem, suggest_name
from exporter.manifest.reading.layers import Layer
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.validation import ManifestFile
from exporter.manifest.schema.entry import ModelEntry, Settings
from exporter.manifest.syntax.message_format import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedEntry:
    """An entry with the `[defaults]` of its file."""

    id: str
    entry: Layer
    defaults: Layer

    @property
    def parent(self) -> str:
        """The ID that the entry extends, or ""."""
        table = self.entry.table
        return table.extends if isinstance(table, ModelEntry) else ""


@dataclass(frozen=True, slots=True)
class InheritanceGraph:
    """Every entry of every file."""

    entries: list[InheritedEntry] = field(default_factory=list)
    _by_id: dict[str, InheritedEntry] = field(default_factory=dict)
    _unreadable: dict[str, tuple[Problem, ...]] = field(default_factory=dict)

    def add(self, file: ManifestFile) -> None:
        """Add the entries of a file."""
        self._unreadable.update(file.unreadable)
        for id, layer in file.entries.items():
            entry = InheritedEntry(id=id, entry=layer, defaults=file.defaults)
            self.entries.append(entry)
            self._by_id.setdefault(id, entry)

    def list_layers(
        self, entry: InheritedEntry, report: ProblemCollector, children: tuple[str, ...] = ()
    ) -> Sequence[Layer]:
        """Return the layers, lowest first: `[defaults]`, the layers of the parent, the entry.

        Args:
            entry: The entry.
            report: Receives unknown parents and cycles.
            children: The entries that inherit from it, to detect cycles.
        """
        children = (*children, entry.id)
        if not entry.parent and "extends" not in entry.entry.broken:
            return [entry.defaults, entry.entry]
        parent = self._by_id.get(entry.parent)
        if parent is not None and entry.parent not in children:
            return [entry.defaults, *self.list_layers(parent, report, children), entry.entry]
        if "extends" not in entry.entry.broken:
            self._report_parent(entry, report, children)
        # Any required key may be in the unreadable parent, so none counts as missing.
        empty = Settings.model_construct(set())
        unknown = replace(entry.entry, table=empty, broken=dict.fromkeys(Settings.required, ()))
        return [entry.defaults, unknown, entry.entry]

    def _report_parent(
        self, entry: InheritedEntry, report: ProblemCollector, children: tuple[str, ...]
    ) -> None:
        name = entry.parent
        if name in children:
            cycle = children[children.index(name) :]
            first = cycle.index(min(cycle))  # every entry of the cycle reports the same problem
            text = " -> ".join((*cycle[first:], *cycle[: first + 1]))
            message = f"is a cycle: {text}; remove one `extends`"
            report.add(_build_problem(self._by_id[cycle[first]], message))
        elif name in self._unreadable:
            for problem in self._unreadable[name]:
                report.add(problem)
        else:
            hint = suggest_name(name, self._by_id)
            report.add(_build_problem(entry, f"no model has the ID {quote(name)}{hint}"))


def _build_problem(entry: InheritedEntry, message: str) -> Problem:
    return entry.entry.file.build_problem((*entry.entry.path, "extends"), message)
