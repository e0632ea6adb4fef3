"""Opsets in every spelling."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest.syntax.opsets import (
    FIRST_OPSET,
    LAST_OPSET,
    parse_condition,
    parse_opsets,
    format_opsets,
)

_OPSET = st.integers(FIRST_OPSET, LAST_OPSET)
_RANGE = st.tuples(_OPSET, _OPSET).map(sorted)
_SPELLING = st.one_of(
    _OPSET.map(lambda opset: (opset, {opset})),
    _OPSET.map(lambda opset: (str(opset), {opset})),
    _RANGE.map(lambda ends: (f"{ends[0]}..{ends[1]}", set(range(ends[0], ends[1] + 1)))),
)


@pytest.mark.parametrize(
    ("written", "meant"),
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
def test_spellings(written: object, meant: tuple[int, ...]) -> None:
    assert parse_opsets(written) == meant
    assert parse_condition(written) == meant


@given(st.lists(_SPELLING, min_size=1, max_size=5))
def test_a_list_means_all_of_its_items(items: list[tuple[object, set[int]]]) -> None:
    meant = tuple(sorted(set().union(*(opsets for _, opsets in items))))
    assert parse_opsets([written for written, _ in items]) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
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
def test_conditions(written: object, meant: range) -> None:
    assert parse_condition(written) == tuple(meant)


@pytest.mark.parametrize(
    "written",
    [
        *(6, 27, 0, -9, 9.0, True, None, 10**400),
        *("6..9", "9..27", "12..11", "", "9-11", "9..", "..9", "9...11", "x", "<14", "٩"),
        *("9..11..13", "9,10", "9" * 400),
        *([], {}, [[9]]),
    ],
)
def test_what_names_no_opset_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"opset|range"):
        parse_opsets(written)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([5, 99], "opsets 5 and 99 are outside 7 to 26"),
        ("5..99", "opsets 5 and 99 are outside 7 to 26"),
        ([99, 17, "3..5", 99], "opsets 3, 5 and 99 are outside 7 to 26"),
        ([30], "opset 30 is outside 7 to 26"),
        (
            ["21..9", 99],
            'the range "21..9" is reversed; write "9..21"; opset 99 is outside 7 to 26',
        ),
    ],
)
def test_all_that_is_wrong_with_a_list_is_said(written: object, said: str) -> None:
    for parse in (parse_opsets, parse_condition):
        with pytest.raises(ValueError, match=re.escape(said)) as caught:
            parse(written)
        assert str(caught.value) == said


@pytest.mark.parametrize("written", ["<7", ">26", ">=27", "=9", "<", "<=x", [], "!9", "**"])
def test_conditions_that_nothing_meets_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="opset"):
        parse_condition(written)


@given(st.sets(_OPSET, min_size=1))
def test_opsets_in_words_name_each_of_them(opsets: set[int]) -> None:
    read = []
    for part in format_opsets(opsets).split(", "):
        first, _, last = part.partition(" to ")
        read += range(int(first), int(last or first) + 1)
    assert read == sorted(opsets)
