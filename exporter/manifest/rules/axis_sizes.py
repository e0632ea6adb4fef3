"""The sizes that an axis takes: its limits in words, and free ones for an example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from math import isqrt

from exporter.manifest.resolved.call import Axis
from exporter.manifest.syntax.fields import MAX_SIZE
from exporter.manifest.syntax.values import join_words


def format_size_limits(axis: Axis) -> str:
    limits = [f"at least {axis.min}"]
    if axis.max is not None:
        limits.append(f"at most {axis.max}")
    if axis.multiple_of > 1:
        limits.append(f"a multiple of {axis.multiple_of}")
    return join_words(limits)


#: Candidates for a prime: the gaps between primes below `MAX_SIZE` are smaller than 300.
_ATTEMPTS = 1000


def find_free_sizes(axis: Axis, used: set[int]) -> Iterator[int]:
    """Return unused sizes: multiples by primes from 3, then all others from 2.

    The multiple by 1 is the last one, because the capture may fix an axis of this size.
    """
    factors = range(max(3, -(-axis.min // axis.multiple_of)), MAX_SIZE)
    primes = (
        number
        for number in islice(factors, _ATTEMPTS)
        if all(number % divisor for divisor in range(2, isqrt(number) + 1))
    )
    multiples = (axis.multiple_of * prime for prime in primes)
    others = islice(list_sizes(axis, max(2 * axis.multiple_of, axis.min)), _ATTEMPTS)
    last = (axis.multiple_of,) if axis.multiple_of > 1 else ()
    sizes = chain(multiples, others, last)
    return (size for size in sizes if axis.allows(size) and size not in used)


def list_sizes(axis: Axis, first: int) -> range:
    """Return the promised sizes from `first`."""
    step = axis.multiple_of
    last = MAX_SIZE if axis.max is None else axis.max
    return range(-(-first // step) * step, last + 1, step)
