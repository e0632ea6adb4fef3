"""Places in the model's call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import parse_call_path
from exporter.manifest.syntax.call_paths import find_conflicts, format_call_path, find_next_position

_INDEX = st.integers(0, 9999)
_KEY = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
_STEPS = st.lists(_INDEX | _KEY, max_size=4)
_PLACES = st.one_of(
    st.tuples(st.just("args"), _INDEX, _STEPS), st.tuples(st.just("kwargs"), _KEY, _STEPS)
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("args[0]", ("args", (0,))),
        ("args[1][0]", ("args", (1, 0))),
        ("args[2].key[3]", ("args", (2, "key", 3))),
        ("kwargs.mask", ("kwargs", ("mask",))),
        ("kwargs.past[0].key", ("kwargs", ("past", 0, "key"))),
    ],
)
def test_places(text: str, parsed: object) -> None:
    assert parse_call_path(text) == parsed


@given(_PLACES)
def test_places_read_back_as_written(place: tuple[str, int | str, list[int | str]]) -> None:
    root, first, rest = place
    assert parse_call_path(format_call_path(root, (first, *rest))) == (root, (first, *rest))


@given(st.text(st.sampled_from("args[]kw.0129é_x -"), max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        root, steps = parse_call_path(text)
    except ValueError:
        return
    assert format_call_path(root, steps) == text


@pytest.mark.parametrize(
    "text",
    ["", "args", "kwargs", "args.x", "kwargs[0]", "args[-1]", "args[00]", "args[0", "args[0].",
     "kwargs.1", "Args[0]", " args[0]", "args[0]\n", "args[٣]", "argskwargs.x", "args[0]x"],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a place"):
        parse_call_path(text)


def test_the_next_position_passes_what_constants_have() -> None:
    assert find_next_position([], frozenset()) == 0
    assert find_next_position([(0,), (3, 1)], frozenset()) == 4
    assert find_next_position([(0,)], frozenset({1, 2, 4})) == 3


def _told(*places: str) -> dict[int, str]:
    return dict(find_conflicts([(place, f"value {index}") for index, place in enumerate(places)]))


def test_places_that_fit_together() -> None:
    assert _told() == {}
    assert _told("args[1]", "args[0]", "kwargs.a", "kwargs.b[0]", "kwargs.b[1].x") == {}
    assert _told("args[0][0].a", "args[0][0].b", "args[0][1]") == {}


def test_one_place_for_two_values_is_told_at_the_second() -> None:
    assert _told("kwargs.a", "kwargs.a") == {1: "'kwargs.a' is already taken by value 0"}


def test_a_place_inside_another_value_is_told_in_either_order() -> None:
    assert list(_told("args[0]", "args[0][0]")) == [1]
    assert list(_told("args[0][0]", "args[0]")) == [1]
    assert list(_told("kwargs.a.b.c", "kwargs.a")) == [1]


def test_gaps_are_told_at_the_place_after_them() -> None:
    assert _told("args[0]", "args[2]") == {1: "'args[1]' is missing before this one"}
    assert _told("kwargs.x[1]") == {0: "'kwargs.x[0]' is missing before this one"}
    assert list(_told("args[0][1]", "args[1]")) == [0]


def test_a_container_is_a_list_or_a_dict() -> None:
    told = _told("kwargs.x[0]", "kwargs.x.y")
    assert told == {1: "'kwargs.x' cannot have both positions and keys"}
