"""Advice about operators that a library uses only with one of its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from exporter.records.record import MissingOperator

#: Parts of operator names, and the setting that replaces them by operators of ONNX.
_SETTINGS = (
    (
        re.compile(r"(?:\b|_)grouped_mm"),
        'a mixture of experts of transformers: set `experts_implementation = "batched_mm"`',
    ),
    (
        re.compile(r"\b(?:flex|flash)_attention|\bflash_attn"),
        'a model of transformers: set `attn_implementation = "sdpa"` in its configuration',
    ),
)


def advise_on_operators(missing: Iterable[MissingOperator]) -> tuple[str, ...]:
    """Return one sentence for each setting that avoids missing operators."""
    names = [each.operator for each in missing]
    return tuple(text for name, text in _SETTINGS if any(map(name.search, names)))
