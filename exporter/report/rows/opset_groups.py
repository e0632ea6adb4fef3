"""Groups of cells that differ only in their opset: `alexnet/13..17/cpu`."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from exporter.manifest.syntax.opsets import format_opsets
from exporter.records.record import CellId

T = TypeVar("T")

_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetGroup(Generic[T]):
    """Members with equal keys, for one model on one device."""

    model: str
    device: str
    opsets: tuple[int, ...]
    members: tuple[T, ...]
    """In the order of `opsets`."""

    @property
    def opset_ranges(self) -> str:
        """`13..17`."""
        return format_opsets(self.opsets)

    @property
    def label(self) -> str:
        """`alexnet/9..13,17/cpu`; for a single member, the id of its cell."""
        return f"{self.model}/{self.opset_ranges.replace(', ', ',')}/{self.device}"

    @property
    def first(self) -> T:
        """The member with the lowest opset, which represents the group."""
        return self.members[0]


def group_by_opset(
    items: Iterable[T], cell_of: Callable[[T], CellId], key_of: Callable[[T], Hashable]
) -> tuple[OpsetGroup[T], ...]:
    """Group the items with equal model, device and key, in the order of their first item."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        cell = cell_of(item)
        groups.setdefault((cell.model, cell.device, key_of(item)), []).append(item)
    results = []
    for group in groups.values():
        group.sort(key=lambda item: cell_of(item).opset)
        cell = cell_of(group[0])
        results.append(
            OpsetGroup(
                model=cell.model,
                device=cell.device,
                opsets=tuple(cell_of(item).opset for item in group),
                members=tuple(group),
            )
        )
    return tuple(results)


def mask_numbers(message: str) -> str:
    """Return the message with `#` for each number, so equal failures have equal texts."""
    return _NUMBER.sub("#", message)
