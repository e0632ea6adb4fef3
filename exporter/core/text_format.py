"""Numbers, counts and lists of names as text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

#: Units that the manifest accepts for sizes, the largest first.
_LIMIT_UNITS = (("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6))


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Return the count with its noun: `1 cell`, `2 cells`, `2 entries`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def join_names(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, and the number of the others: `a, b and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def format_bytes(count: float) -> str:
    """Return a size in decimal units with three significant digits: `244 MB`."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    digits = 0 if unit == "B" or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {unit}"


def format_byte_limit(limit: int) -> str:
    """Return a limit in the notation of the manifest: `8GiB`, `500MB`.

    Returns:
        The value in the largest unit that divides it, or else rounded to MiB.
    """
    for unit, size in _LIMIT_UNITS:
        if limit % size == 0:
            return f"{limit // size}{unit}"
    return f"{limit / (1 << 20):.0f}MiB"


def format_two_digits(value: float | str) -> str:
    """Return a float with two significant digits, and any other value as it is."""
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def round_up_two_digits(value: float) -> float:
    """Return the value with two significant digits, never rounded down."""
    if not value:
        return 0.0
    exact = Decimal(value)
    step = Decimal((0, (1,), exact.adjusted() - 1))
    return float(exact.quantize(step, rounding=ROUND_CEILING))
