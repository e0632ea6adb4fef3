"""Advice about operators that a setting of a library avoids."""

from __future__ import annotations

import pytest

from exporter.records.record import MissingOperator
from exporter.worker.diagnose.library_advice import advise_on_operators


@pytest.mark.parametrize(
    ("operator", "setting"),
    [
        ("transformers.grouped_mm_fallback.default", 'experts_implementation = "batched_mm"'),
        ("aten._grouped_mm.default", 'experts_implementation = "batched_mm"'),
        ("flash_attn._flash_attn_forward.default", 'attn_implementation = "sdpa"'),
        ("higher_order.flex_attention", 'attn_implementation = "sdpa"'),
    ],
)
def test_a_setting_of_the_library_avoids_the_operator(operator: str, setting: str) -> None:
    missing = [MissingOperator(operator=name, count=2, sources=()) for name in (operator,) * 2]
    (advice,) = advise_on_operators(missing)
    assert setting in advice


def test_other_operators_have_no_such_advice() -> None:
    missing = [MissingOperator(operator="aten.special_airy_ai.default", count=1, sources=())]
    assert advise_on_operators(missing) == ()
