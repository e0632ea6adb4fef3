"""Entries and what they extend in, the layers that each stands on out.

Unknown parents and circles are reported, and cost only what they would have brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import Layer
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.validation import ManifestFile
from exporter.manifest.schema.entry import ModelEntry, Settings
from exporter.manifest.syntax.message_format import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedEntry:
    """An entry, and the file that it stands in."""

    id: str
    entry: Layer
    defaults: Layer

    @property
    def parent(self) -> str:
        """The ID that it extends; empty where it extends none."""
        table = self.entry.table
        return table.extends if isinstance(table, ModelEntry) else ""


@dataclass(frozen=True, slots=True)
class InheritanceGraph:
    """Every entry of every file."""

    report: ProblemCollector
    members: list[InheritedEntry] = field(default_factory=list)
    _by_id: dict[str, InheritedEntry] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)

    def add(self, file: ManifestFile) -> None:
        """Takes in the entries of a file."""
        self._unreadable.update(file.unreadable)
        for id, entry in file.entries.items():
            member = InheritedEntry(id=id, entry=entry, defaults=file.defaults)
            self.members.append(member)
            self._by_id.setdefault(id, member)

    def layers(self, member: InheritedEntry) -> Sequence[Layer]:
        """Lowest first: `[defaults]` of the file, all that the parent stands on, the entry."""
        return self._layers(member, (member.id,))

    def _layers(self, member: InheritedEntry, children: tuple[str, ...]) -> list[Layer]:
        if "extends" in member.entry.broken:
            return [member.defaults, _unknown(member), member.entry]
        if not member.parent:
            return [member.defaults, member.entry]
        parent = self._by_id.get(member.parent)
        if parent is None or member.parent in children:
            self._refuse(member, children)
            return [member.defaults, _unknown(member), member.entry]
        above = self._layers(parent, (*children, member.parent))
        return [member.defaults, *above, member.entry]

    def _refuse(self, member: InheritedEntry, children: tuple[str, ...]) -> None:
        name = member.parent
        if name in children:
            circle = children[children.index(name) :]
            first = circle.index(min(circle))  # told once, from wherever it is entered
            ring = " -> ".join((*circle[first:], *circle[: first + 1]))
            entry = self._by_id[circle[first]].entry
            path = (*entry.path, "extends")
            self.report.add(entry.file.problem(path, f"goes in a circle: {ring}"))
        elif name not in self._unreadable:
            hint = suggest_nearest(name, self._by_id)
            message = f"no model has the ID {quote(name)}{hint}"
            path = (*member.entry.path, "extends")
            self.report.add(member.entry.file.problem(path, message))


def _unknown(member: InheritedEntry) -> Layer:
    """Stands for a parent that cannot be read: what every model needs may be in it."""
    empty = Settings.model_construct(set())
    return replace(member.entry, table=empty, broken=frozenset(Settings.required))
