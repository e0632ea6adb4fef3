"""The notation of opsets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest.syntax.versions import (
    FIRST_OPSET,
    LAST_OPSET,
    format_opsets,
    parse_condition,
    parse_opsets,
)

_OPSET = st.integers(FIRST_OPSET, LAST_OPSET)
_RANGE = st.tuples(_OPSET, _OPSET).map(sorted)
_NOTATION = st.one_of(
    _OPSET.map(lambda opset: (opset, {opset})),
    _OPSET.map(lambda opset: (str(opset), {opset})),
    _RANGE.map(lambda ends: (f"{ends[0]}..{ends[1]}", set(range(ends[0], ends[1] + 1)))),
)


@pytest.mark.parametrize(
    ("text", "opsets"),
    [
        (17, (17,)),
        ("17", (17,)),
        ("9..12", (9, 10, 11, 12)),
        ("9 .. 10", (9, 10)),
        ([13, "17..18"], (13, 17, 18)),
        (["12", "11..13", 12, 7], (7, 11, 12, 13)),
        ("26", (26,)),
    ],
)
def test_valid_opsets(text: object, opsets: tuple[int, ...]) -> None:
    assert parse_opsets(text) == opsets
    assert parse_condition(text) == opsets


@given(st.lists(_NOTATION, min_size=1, max_size=5))
def test_a_list_contains_all_opsets_of_its_items(items: list[tuple[object, set[int]]]) -> None:
    expected = tuple(sorted(set().union(*(opsets for _, opsets in items))))
    assert parse_opsets([text for text, _ in items]) == expected


@pytest.mark.parametrize(
    ("text", "opsets"),
    [
        ("*", range(7, 27)),
        ("<14", range(7, 14)),
        ("<=13", range(7, 14)),
        (">=18", range(18, 27)),
        ("> 24", range(25, 27)),
        (["<9", 20], (7, 8, 20)),
        ("<99", range(7, 27)),
    ],
)
def test_conditions(text: object, opsets: range) -> None:
    assert parse_condition(text) == tuple(opsets)


@pytest.mark.parametrize(
    "text",
    [
        *(6, 27, 0, -9, 9.0, True, None, 10**400),
        *("6..9", "9..27", "12..11", "", "9-11", "9..", "..9", "9...11", "x", "<14", "٩"),
        *("9..11..13", "9,10", "9" * 400),
        *([], {}, [[9]]),
    ],
)
def test_values_without_an_opset_are_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r"opset|range"):
        parse_opsets(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([5, 99], "opsets 5 and 99 are outside 7..26; use one of these"),
        ("5..99", "opsets 5 and 99 are outside 7..26; use one of these"),
        ([99, 17, "3..5", 99], "opsets 3, 5 and 99 are outside 7..26; use one of these"),
        ([30], "opset 30 is outside 7..26; use one of these"),
        (
            ["21..9", 99],
            'the range "21..9" is reversed; write "9..21"; opset 99 is outside 7..26; use one '
            + "of these",
        ),
    ],
)
def test_all_problems_of_a_list_are_reported(text: object, message: str) -> None:
    for parse in (parse_opsets, parse_condition):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            parse(text)
        assert str(caught.value) == message


@pytest.mark.parametrize("text", ["<7", ">26", ">=27", "=9", "<", "<=x", [], "!9", "**"])
def test_conditions_without_an_opset_are_rejected(text: object) -> None:
    with pytest.raises(ValueError, match="opset"):
        parse_condition(text)


@given(st.sets(_OPSET, min_size=1))
def test_formatted_opsets_parse_to_the_same_opsets(opsets: set[int]) -> None:
    assert parse_opsets(format_opsets(opsets).split(", ")) == tuple(sorted(opsets))


@pytest.mark.parametrize(
    ("opsets", "text"),
    [([], ""), ([18], "18"), ([9, 10], "9..10"), ([13, 9, 10, 11, 9], "9..11, 13")],
)
def test_the_notation_has_ranges(opsets: list[int], text: str) -> None:
    assert format_opsets(opsets) == text
