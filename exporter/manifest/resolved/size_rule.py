"""The sizes of derived axes: a `SizeRule` computes the size of an axis from other axes.

No limits are applied here: a difference may be negative. `ModelSpec` compares the sizes with the
limits of their axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items


class SizeRule(FrozenModel):
    """The computation of the size of a derived axis. A kind ignores the fields of the others."""

    kind: Literal["sum", "difference", "product", "window"]
    operands: Items[int | str]
    """Sizes and names of axes; exactly one name for `window`."""
    stride: int = 1
    kernel: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes that determine the size, each once."""
        return tuple(dict.fromkeys(item for item in self.operands if isinstance(item, str)))

    @property
    def is_rising(self) -> bool:
        """Whether a larger axis never gives a smaller size."""
        return self.kind != "difference"

    def compute(self, sizes: Mapping[str, int]) -> int:
        """Return the size for the sizes of the other axes, by name.

        Raises:
            KeyError: If an axis has no size.
        """
        first, *others = (sizes[item] if isinstance(item, str) else item for item in self.operands)
        match self.kind:
            case "sum":
                return first + sum(others)
            case "difference":
                return first - sum(others)
            case "product":
                return first * prod(others)
            case "window":
                return (first + self._margin) // self.stride + 1

    @property
    def formula(self) -> str:
        """The computation as text: `past + seq`, `(length - 1)//2 + 1`."""
        signs = {"sum": " + ", "difference": " - ", "product": "*"}
        if self.kind != "window":
            return signs[self.kind].join(str(item) for item in self.operands)
        name, margin = str(self.operands[0]), self._margin
        if margin == -self.stride:
            return f"{name}//{self.stride}"
        shifted = f"({name} {'+' if margin > 0 else '-'} {abs(margin)})" if margin else name
        if self.stride > 1:
            return f"{shifted}//{self.stride} + 1"
        return f"{name} {'+' if margin >= 0 else '-'} {abs(margin + 1)}"

    @property
    def _margin(self) -> int:
        """The padding minus the part of a window that moves no step."""
        return 2 * self.padding - self.dilation * (self.kernel - 1) - 1


def complete_sizes(sizes: Mapping[str, int], rules: Mapping[str, SizeRule]) -> dict[str, int]:
    """Return the sizes with those of all derived axes that they determine.

    Args:
        sizes: The sizes of the other axes, by name.
        rules: The rules by the name of the derived axis; cycles get no size.
    """
    complete = {name: size for name, size in sizes.items() if name not in rules}
    pending = dict(rules)
    while ready := [name for name, rule in pending.items() if complete.keys() >= {*rule.axes}]:
        complete |= {name: pending.pop(name).compute(complete) for name in ready}
    return complete


def find_bases(names: Iterable[str], rules: Mapping[str, SizeRule]) -> tuple[str, ...]:
    """Return the axes that determine the named axes in the end, each once.

    An axis without a rule determines itself. An axis of a cycle has no base.
    """
    bases: dict[str, None] = {}
    pending, seen = list(names), set()
    while pending:
        name = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if rule := rules.get(name):
            pending[:0] = rule.axes
        else:
            bases[name] = None
    return tuple(bases)
