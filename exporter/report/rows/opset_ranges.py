"""Cells that differ in their opset only, folded into one row: `alexnet/13-17/cpu`.

In: findings, or anything with a cell and a key. Out: `OpsetGroup`s, each with a label and its members.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from exporter.records.record import CellId

T = TypeVar("T")


_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetGroup(Generic[T]):
    """Members that are alike, of one model on one device."""

    model: str
    device: str
    opsets: tuple[int, ...]
    members: tuple[T, ...]
    """In the order of `opsets`."""

    @property
    def opset_ranges(self) -> str:
        """`13-17`."""
        return fold_opsets(self.opsets)

    @property
    def label(self) -> str:
        """`alexnet/13-17/cpu`; one member alone has its cell's own text."""
        return f"{self.model}/{self.opset_ranges}/{self.device}"

    @property
    def first(self) -> T:
        """The member that speaks for all."""
        return self.members[0]


def fold_opsets(opsets: Iterable[int]) -> str:
    """Ranges of neighbouring opsets: `9-13,15`."""
    ranges: list[tuple[int, int]] = []
    for opset in sorted(set(opsets)):
        if ranges and opset == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], opset)
        else:
            ranges.append((opset, opset))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def fold(
    items: Iterable[T], cell_of: Callable[[T], CellId], key_of: Callable[[T], Hashable]
) -> tuple[OpsetGroup[T], ...]:
    """Folds the items of a model and device that have equal keys, in the order of their first."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        cell = cell_of(item)
        groups.setdefault((cell.model, cell.device, key_of(item)), []).append(item)
    return tuple(_fold_of(group, cell_of) for group in groups.values())


def likeness(message: str) -> str:
    """`message` without its numbers: an opset or an error figure makes no other failure."""
    return _NUMBER.sub("#", message)


def _fold_of(group: list[T], cell_of: Callable[[T], CellId]) -> OpsetGroup[T]:
    group.sort(key=lambda item: cell_of(item).opset)
    cell = cell_of(group[0])
    return OpsetGroup(
        model=cell.model,
        device=cell.device,
        opsets=tuple(cell_of(item).opset for item in group),
        members=tuple(group),
    )
