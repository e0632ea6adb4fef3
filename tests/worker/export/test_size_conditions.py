"""Conditions in the notation of torch.export."""

from __future__ import annotations

import pytest

from exporter.worker.export.size_conditions import parse_conditions


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("Ne(Mod(s0, 8), 0)", {"s0": 3}, {"s0": 16}),
        ("Eq(s0, s1)", {"s0": 3, "s1": 3}, {"s0": 3, "s1": 4}),
        ("s0 <= 20", {"s0": 20}, {"s0": 21}),
        ("(3 <= s0) | Eq(s1, 1)", {"s0": 2, "s1": 1}, {"s0": 2, "s1": 2}),
        ("~((s0 < 4))", {"s0": 4}, {"s0": 3}),
        ("1 < Max(1, (((s0 - 3)//2)) + 1)*s1", {"s0": 9, "s1": 1}, {"s0": 3, "s1": 1}),
        ("Or(Eq(s0, 2), -s0 + 9 < 4.5)", {"s0": 5}, {"s0": 4}),
        ("Ne(s0**2, 16)", {"s0": 5}, {"s0": 4}),
    ],
)
def test_a_condition_is_true_or_false(
    text: str, true: dict[str, int], false: dict[str, int]
) -> None:
    (condition,) = parse_conditions(text) or ()
    assert condition.symbols == true.keys()
    assert condition.holds(true)
    assert not condition.holds(false)


def test_a_conjunction_has_parts() -> None:
    parts = parse_conditions("(3 <= s0) & And(s1 < 8, Ne(s0, s1))") or ()
    assert [part.text for part in parts] == ["3 <= s0", "s1 < 8", "Ne(s0, s1)"]
    assert [sorted(part.constants) for part in parts] == [[3], [8], []]


def test_a_condition_without_a_value_breaks_nothing() -> None:
    (condition,) = parse_conditions("Eq(Mod(8, s0), 0)") or ()
    assert condition.holds({"s0": 0})
    assert not condition.holds({"s0": 3})


@pytest.mark.parametrize("text", ["", "f(s0)", "s0 <", "s0[0]", "s0.x < 3", "1 < s0 < 3", "'a'"])
def test_an_unknown_notation_is_no_condition(text: str) -> None:
    assert parse_conditions(text) is None
