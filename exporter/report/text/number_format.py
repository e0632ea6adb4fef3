"""Figures and messages for committed pages, rounded to values that all machines agree on."""

from __future__ import annotations

import math
import re

from exporter.core.text import format_two_digits, redact

#: Characters.
_MESSAGE_LENGTH = 400
_DETAIL_LENGTH = 12_000
#: Characters. Two texts that share a prefix of this length count as repetition.
_REPEATED_PREFIX = 40
#: Floats with machine-dependent digits: an exponent, or at least four decimals. A version
#: (`2.13.0`) has neither.
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[+-]?\d+(?![\w.])|(?<![\w.])\d+\.\d{4,}(?![\w.])")


def format_magnitude(value: float) -> str:
    """Return the next power of ten, which is stable across machines in almost all cases."""
    if not math.isfinite(value) or value <= 0:
        return format_two_digits(value)
    exponent = math.ceil(math.log10(value) - 1e-12)
    return f"≤ {10**exponent}" if 0 <= exponent < 4 else f"≤ 1e{exponent}"


def format_limit_share(value: float) -> str:
    """Return an error as a multiple of its limit, in steps that noise rarely crosses."""
    for share in (0.01, 0.1, 0.5, 1.0):
        if value <= share:
            return f"≤ {share:.0%} of its limit"
    return f"{format_two_digits(value)} times its limit"


def format_count(number: int) -> str:
    """Return a count with separated thousands: `61 100 840`."""
    return f"{number:,}".replace(",", " ")


def clean_message(text: str) -> str:
    """Return one line of a record without the parts that depend on the machine or the run."""
    return _round_floats(redact(" ".join(text.split()), limit=_MESSAGE_LENGTH))


def clean_detail(text: str) -> str:
    """Return many lines of a record without the parts that depend on the machine or the run."""
    return _round_floats(redact(text, limit=_DETAIL_LENGTH))


def replace_repetition(text: str, earlier: str) -> str:
    """Return the text with `as above` for the part that repeats an earlier text.

    Either text may be truncated.
    """
    head = earlier[:_REPEATED_PREFIX]
    start = text.find(head)
    if len(head) < _REPEATED_PREFIX or start < 0:
        return text
    rest, full = text[start:].rstrip("…"), earlier.rstrip("…")
    if full.startswith(rest):
        return f"{text[:start]}as above"
    return f"{text[:start]}as above{rest[len(full) :]}" if rest.startswith(full) else text


def _round_floats(text: str) -> str:
    return _FLOAT.sub(lambda match: f"{float(match.group()):.2g}", text)
