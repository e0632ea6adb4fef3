"""Paths in the model's call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import parse_call_path
from exporter.manifest.rules.call_rules import find_conflicts
from exporter.manifest.syntax.values import find_next_position, format_call_path

_INDEX = st.integers(0, 9999)
_KEY = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
_STEPS = st.lists(_INDEX | _KEY, max_size=4)
_PATHS = st.one_of(
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
def test_valid_paths(text: str, parsed: object) -> None:
    assert parse_call_path(text) == parsed


@given(_PATHS)
def test_parsed_paths_format_to_the_same_text(path: tuple[str, int | str, list[int | str]]) -> None:
    root, first, rest = path
    assert parse_call_path(format_call_path(root, (first, *rest))) == (root, (first, *rest))


@given(st.text(st.sampled_from("args[]kw.0129é_x -"), max_size=12))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
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
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a path"):
        parse_call_path(text)


def test_the_next_position_skips_reserved_positions() -> None:
    assert find_next_position(-1, frozenset()) == 0
    assert find_next_position(3, frozenset()) == 4
    assert find_next_position(0, frozenset({1, 2, 4})) == 3


def _find(*paths: str) -> dict[int, str]:
    return dict(find_conflicts([(path, f"value {index}") for index, path in enumerate(paths)]))


def test_paths_without_conflicts() -> None:
    assert _find() == {}
    assert _find("args[1]", "args[0]", "kwargs.a", "kwargs.b[0]", "kwargs.b[1].x") == {}
    assert _find("args[0][0].a", "args[0][0].b", "args[0][1]") == {}


def test_one_path_for_two_values_is_reported_at_the_second() -> None:
    assert _find("kwargs.a", "kwargs.a") == {1: "'kwargs.a' is already used by value 0"}


def test_a_path_inside_another_value_is_reported_in_either_order() -> None:
    assert list(_find("args[0]", "args[0][0]")) == [1]
    assert list(_find("args[0][0]", "args[0]")) == [1]
    assert list(_find("kwargs.a.b.c", "kwargs.a")) == [1]


def test_missing_positions_are_reported_at_the_next_path() -> None:
    assert _find("args[0]", "args[2]") == {1: "'args[1]' is missing before this position"}
    assert _find("kwargs.x[1]") == {0: "'kwargs.x[0]' is missing before this position"}
    assert list(_find("args[0][1]", "args[1]")) == [0]


def test_a_container_is_a_list_or_a_dict() -> None:
    problems = _find("kwargs.x[0]", "kwargs.x.y")
    assert problems == {1: "'kwargs.x' cannot have both positions and keys"}
