"""Which sizes prove that a dynamic axis is dynamic.

In: the axes of a contract. Out: input sets by name, each with the size of every axis. No torch.

Sizes are far from the exported ones and coprime to them: 4 and 5 look alike after a stride of 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import gcd, prod
from typing import Literal

from exporter.manifest import Axis, Case, ModelSpec

_SEARCH = 10_000
#: Elements of the largest tensor that a probe of the largest size may make: 256 MB of float32.
_AFFORDABLE = 1 << 26
#: Elements of a tensor from which on each row of it costs.
_LARGE = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """One set of inputs to run PyTorch and the file on."""

    name: str
    kind: Literal["declared", "axis", "case", "values"]
    sizes: Mapping[str, int]
    case: Case | None = None
    changed_input: str = ""
    """The input that gets other values than in the declared set."""
    increment: int = 0
    """How much larger these integers are; PyTorch may refuse them."""
    factor: float = 1.0
    """What the declared values of that input are multiplied by, in place of other ones."""
    seed: int = 0
    """Added to the model's seed when inputs are drawn."""


def choose_usual_sets(spec: ModelSpec) -> tuple[InputSet, ...]:
    """The declared set, each axis alone, all together, the manifest's cases, each input changed."""
    axes = [axis for axis in spec.axes if axis.example is not None]
    declared = {axis.name: axis.example for axis in axes if axis.example is not None}
    sets = [InputSet(name="declared", kind="declared", sizes=declared)]
    can_choose = spec.inputs_from is None or spec.inputs_from.takes_sizes
    is_large = _elements(spec, declared) > _LARGE
    for axis in axes if can_choose else ():
        found = choose_probes(axis, is_large=is_large)
        for size in dict.fromkeys((*found, *_largest(spec, axis, declared))):
            sizes = {**declared, axis.name: size}
            sets.append(InputSet(name=f"{axis.name}={size}", kind="axis", sizes=sizes))
    together = _joint_sizes(axes, declared, is_large=is_large) if len(axes) > 1 else {}
    if can_choose and together:
        name = " ".join(f"{axis}={size}" for axis, size in together.items())
        sets.append(InputSet(name=name, kind="axis", sizes=together))
    for case in spec.cases:
        sizes = {**declared, **case.axes}
        sets.append(InputSet(name=case.name, kind="case", sizes=sizes, case=case))
    for item in spec.inputs:
        name = f"other {item.name}"
        sets.append(InputSet(name=name, kind="values", sizes=declared, changed_input=item.name))
        if not item.fill.is_random and "int" in item.dtype:
            # One turn less of a loop may add nothing; two turns more are another matter.
            larger = InputSet(
                name=f"larger {item.name}",
                kind="values",
                sizes=declared,
                changed_input=item.name,
                increment=2,
            )
            sets.append(larger)
    return tuple(sets)


def choose_probes(axis: Axis, *, is_large: bool = False) -> tuple[int, ...]:
    """Sizes to prove one axis at: a far one, the smallest promised, and those asked for.

    A size of 1 is where exporters specialise, and where models are served most often.

    Args:
        axis: With the size that it is exported at.
        is_large: Whether tensors are so large that a run takes long: then the far size is nearer.
    """
    example = axis.example or 0
    wanted = [
        find_distant_size(axis, avoid=(example,), is_large=is_large),
        _smallest(axis),
        *axis.probe,
    ]
    chosen = (size for size in wanted if size is not None and size != example)
    return tuple(dict.fromkeys(chosen))


def _largest(spec: ModelSpec, axis: Axis, declared: Mapping[str, int]) -> tuple[int, ...]:
    """The largest size promised, where a run at it costs little: a table may be shorter than that.

    A layer of attention grows with the square of a size, so that the tensors of the contract must
    leave room for their own growth once more.
    """
    if axis.max is None or axis.example is None:
        return ()
    size = axis.max - axis.max % axis.multiple_of
    is_cheap = is_affordable(spec, axis, size, declared)
    return (size,) if is_cheap and size != axis.example and axis.allows(size) else ()


def is_affordable(
    spec: ModelSpec, axis: Axis, size: int, declared: Mapping[str, int], *, room: int = 1
) -> bool:
    """Whether the tensors of the contract leave room for their own growth once more.

    Args:
        spec: The contract.
        axis: The one that is longer; an input has it.
        size: Of that axis.
        declared: The sizes of all axes as they are exported.
        room: So many times the usual memory may be taken.
    """
    elements = _elements(spec, {**declared, axis.name: size})
    return elements * (size / (axis.example or 1)) <= room * _AFFORDABLE


def _elements(spec: ModelSpec, sizes: Mapping[str, int]) -> int:
    """Of the largest tensor of the contract."""
    shapes = [*(item.shape for item in spec.inputs), *(item.shape for item in spec.outputs)]
    return max(prod(sizes.get(d, 1) if isinstance(d, str) else d for d in s) for s in shapes)


def find_distant_size(axis: Axis, *, avoid: Sequence[int], is_large: bool = False) -> int | None:
    """A size well beyond all of `avoid` and coprime to them in units of `multiple_of`.

    Where tensors are large it is beyond by half. Falls back to the best that a narrow range allows;
    None where it allows no other size.
    """
    unit = axis.multiple_of
    reach = max(avoid)
    # Twice as far where that is cheap; a quarter where the axis is an image's width.
    target = reach + (reach + 1 if reach <= 32 * unit else reach // 4 + 1)
    if is_large:
        target = min(target, reach + reach // 2 + 1)
    upwards = (n * unit for n in count(-(-target // unit)))
    for size in _allowed_sizes(upwards, axis):
        if all(gcd(size // unit, max(other // unit, 1)) == 1 for other in avoid):
            return size
    # The range ends before that: from its top down, coprime first, then any other size.
    top = min(axis.max or target, target)
    downwards = [size for size in range(top - top % unit, axis.min - 1, -unit) if size > 0]
    others = [size for size in downwards[:_SEARCH] if size not in avoid and axis.allows(size)]
    coprime = [
        size
        for size in others
        if size > unit and all(gcd(size // unit, max(o // unit, 1)) == 1 for o in avoid)
    ]
    return next(iter(coprime or others), None)


def _smallest(axis: Axis) -> int | None:
    first = 0 if axis.min == 0 else 1
    return next(_allowed_sizes((n * axis.multiple_of for n in count(first)), axis), None)


def _joint_sizes(
    axes: Iterable[Axis], declared: Mapping[str, int], *, is_large: bool
) -> dict[str, int]:
    """Every axis at another size at once, all of them different where their ranges allow it."""
    chosen: dict[str, int] = {}
    for axis in axes:
        alone = find_distant_size(axis, avoid=(declared[axis.name],), is_large=is_large)
        taken = (declared[axis.name], *chosen.values())
        another = _next_coprime(axis, alone, taken) if alone else None
        chosen[axis.name] = another or alone or declared[axis.name]
    return {} if chosen == dict(declared) else chosen


def _next_coprime(axis: Axis, alone: int, taken: tuple[int, ...]) -> int | None:
    unit = axis.multiple_of
    for size in _allowed_sizes((n * unit for n in count(alone // unit + 1)), axis):
        if all(gcd(size // unit, max(other // unit, 1)) == 1 for other in taken):
            return size
    return None


def _allowed_sizes(sizes: Iterable[int], axis: Axis) -> Iterator[int]:
    """The sizes, in rising order, that the contract allows; ends where its range does."""
    for tried, size in enumerate(sizes):
        if tried > _SEARCH or (axis.max is not None and size > axis.max):
            return
        if size >= axis.min:
            yield size
