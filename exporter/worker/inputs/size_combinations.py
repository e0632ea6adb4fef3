"""Choice of the sizes between the usual probes, for several axes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isqrt, lcm, prod

from exporter.manifest import Axis, ModelSpec

Sizes = Mapping[str, int]

#: Multiples to try, because models test for alignment to 2, 8 or 16.
_ALIGNMENTS = (16, 8, 4)
#: The work of all combinations, as a share of the work of the other input sets.
_SHARE, _LARGE_SHARE = 0.5, 0.2
#: Elements of the largest tensor for which the work of a run does not count.
_TINY = 1 << 10


def choose_combinations(
    spec: ModelSpec, declared: Sizes, usual: Sequence[Sizes], *, is_large: bool
) -> Iterator[dict[str, int]]:
    """Yield combinations of sizes that the contract allows, each once, while they are cheap.

    Args:
        spec: The contract.
        declared: The exported sizes.
        usual: The sizes of all other input sets.
        is_large: True if a run is slow; then fewer combinations follow.
    """
    budget = (_LARGE_SHARE if is_large else _SHARE) * sum(
        _measure_work(spec, sizes, declared) for sizes in usual
    )
    known = [dict(sizes) for sizes in usual]
    for alternatives in _propose(spec, declared):
        for proposed in alternatives:
            sizes = spec.complete_sizes({**declared, **proposed})
            is_allowed = all(axis.allows(sizes[axis.name]) for axis in spec.free_axes)
            if not is_allowed or not spec.allows_sizes(sizes):
                continue
            if sizes in known:
                break
            work = _measure_work(spec, sizes, declared)
            if work > budget and count_elements(spec, sizes) > _TINY:
                continue
            budget -= work
            known.append(sizes)
            yield sizes
            break


def count_elements(spec: ModelSpec, sizes: Sizes) -> int:
    """Return the number of elements of the largest tensor in the contract."""
    shapes = [*(item.shape for item in spec.inputs), *(item.shape for item in spec.outputs)]
    return max(count_shape(shape, sizes) for shape in shapes)


def _measure_work(spec: ModelSpec, sizes: Sizes, declared: Sizes) -> float:
    """Return the elements of the inputs as a multiple of the exported ones."""
    return max(
        (
            count_shape(item.shape, sizes) / max(count_shape(item.shape, declared), 1)
            for item in spec.inputs
        ),
        default=1.0,
    )


def count_shape(shape: Sequence[int | str], sizes: Sizes) -> int:
    """Return the number of elements of a tensor."""
    return prod(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in shape)


def _propose(spec: ModelSpec, declared: Sizes) -> Iterator[list[dict[str, int]]]:
    """Yield lists of alternatives: the first one that is allowed and cheap is tried."""
    axes = spec.free_axes
    even = {axis.name: _find_multiple(axis, 2) for axis in axes}
    step = lcm(2, *(axis.multiple_of for axis in axes))
    equal = _round_up(max((2, *(axis.smallest for axis in axes))), step)
    yield [{axis.name: equal for axis in axes}, even]
    if len(axes) > 1:
        yield [{axis.name: max(axis.smallest, axis.multiple_of) for axis in axes}]
    yield [_choose_primes(axes, declared)]
    for axis in axes:
        yield [
            {**others, axis.name: _find_multiple(axis, alignment)}
            for alignment in _ALIGNMENTS
            for others in ((even, {}) if len(axes) > 1 else (even,))
        ]


def _choose_primes(axes: Sequence[Axis], declared: Sizes) -> dict[str, int]:
    """Return for each axis a prime in the middle of its range, in units, all different.

    Without a largest size, the middle is near the exported size.
    """
    chosen: dict[str, int] = {}
    for axis in axes:
        unit, example = axis.multiple_of, declared[axis.name]
        middle = max(example // unit, 3)
        if axis.max is not None:
            middle = max(isqrt(2 * middle * (axis.max // unit)), middle)
        used = {example, *chosen.values()}
        numbers = chain(range(middle, 2 * middle + 8), range(middle, 2, -1))
        primes = (number * unit for number in numbers if _is_prime(number))
        sizes = (size for size in primes if size not in used and axis.allows(size))
        chosen[axis.name] = next(sizes, example)
    return chosen


def _find_multiple(axis: Axis, number: int) -> int:
    """Return the smallest multiple of a number and of the unit that the axis may have."""
    step = lcm(number, axis.multiple_of)
    return _round_up(max(axis.smallest, step), step)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
