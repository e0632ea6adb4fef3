"""Figures as a committed page can hold them: rounded, so that another machine writes the same.

In: metrics and messages of records. Out: short texts. Errors of float arithmetic differ between
machines by a third and more; a page that showed their digits would change with every run.
"""

from __future__ import annotations

import math
import re

from exporter.core.sanitize import redact

_MESSAGE_LENGTH = 400
_DETAIL_LENGTH = 12_000
#: A text of so many letters is the same one again, and worth no second reading.
_TELLING = 40
#: Floats with more digits than carry over: an exponent, or four and more decimals. A version
#: (`2.13.0`) has neither.
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[+-]?\d+(?![\w.])|(?<![\w.])\d+\.\d{4,}(?![\w.])")


def magnitude(value: float) -> str:
    """The next power of ten: machines agree on it but for one in many."""
    if not math.isfinite(value) or value <= 0:
        return two_digits(value)
    exponent = math.ceil(math.log10(value) - 1e-12)
    return f"≤ {10**exponent}" if 0 <= exponent < 4 else f"≤ 1e{exponent}"


def of_limit(value: float) -> str:
    """An error as a multiple of what is allowed, in steps that noise seldom crosses."""
    for share in (0.01, 0.1, 0.5, 1.0):
        if value <= share:
            return f"≤ {share:.0%} of its limit"
    return f"{two_digits(value)} times its limit"


def two_digits(value: float | str) -> str:
    """A figure for somebody who must act on it: floats with two significant digits."""
    if isinstance(value, float):
        return f"{value:.2g}"
    return str(value)


def size(count: int) -> str:
    """Bytes in decimal units with three significant digits: `244 MB`."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    digits = 0 if unit == "B" or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {unit}"


def count(number: int) -> str:
    """A count with its thousands apart: `61 100 840`."""
    return f"{number:,}".replace(",", " ")


def message(text: str) -> str:
    """One line of a record without what differs between machines and runs."""
    return _rounded(redact(" ".join(text.split()), limit=_MESSAGE_LENGTH))


def detail(text: str) -> str:
    """Many lines of a record without what differs between machines and runs."""
    return _rounded(redact(text, limit=_DETAIL_LENGTH))


def not_again(text: str, said: str) -> str:
    """`text` with `as above` where it repeats what was said; either may have lost its end."""
    head = said[:_TELLING]
    start = text.find(head)
    if len(head) < _TELLING or start < 0:
        return text
    rest, whole = text[start:].rstrip("…"), said.rstrip("…")
    if whole.startswith(rest):
        return f"{text[:start]}as above"
    return f"{text[:start]}as above{rest[len(whole) :]}" if rest.startswith(whole) else text


def _rounded(text: str) -> str:
    return _FLOAT.sub(lambda found: f"{float(found.group()):.2g}", text)
