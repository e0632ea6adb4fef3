"""Suggestions at the end of messages, and many problems of one kind."""

from __future__ import annotations

import pytest

from exporter.core import errors
from exporter.core.errors import Location, Problem, shorten_problems, suggest_name


@pytest.mark.parametrize(
    ("word", "names", "end"),
    [
        ("bacth", ["batch", "width"], "; did you mean 'batch'?"),
        ("seq", ["width", "batch"], "; use 'batch' or 'width'"),
        ("seq", [], ""),
        ("seq", ["a1", "a2", "a3", "a4", "a5", "a6"], ""),
    ],
)
def test_the_nearest_name_or_a_few_names_are_suggested(
    word: str, names: list[str], end: str
) -> None:
    assert suggest_name(word, names) == end


def test_many_problems_of_a_kind_have_one_line_with_their_number() -> None:
    def make(count: int, message: str) -> list[Problem]:
        return [
            Problem(message=message.format(i), location=Location(file="net.toml", line=i))
            for i in range(count)
        ]

    few = make(20, 'no model has the ID "m{}"')
    assert shorten_problems(few) == tuple(few)
    hints = make(3000, "no model has the ID \"m{0}\"; did you mean 'n{0}'?")
    other = Problem(message="is a cycle")
    shown = shorten_problems([*hints, other])
    more = Problem(message="2980 more problems like the last one")
    assert shown == (*hints[:20], more, other)


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("layer_17_wieght", "; did you mean 'layer_17_weight'?"),
        ("layer_17_weigh", "; did you mean 'layer_17_weight'?"),
        ("layer_17_weightt", "; did you mean 'layer_17_weight'?"),
        ("layer_250", "; did you mean 'layer_250_weight'?"),
        ("other", ""),
        ("", ""),
    ],
)
def test_a_name_among_many_is_found_by_one_letter_or_its_beginning(word: str, end: str) -> None:
    assert suggest_name(word, [f"layer_{i}_weight" for i in range(300)]) == end


def test_many_names_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors.difflib, "get_close_matches", None)
    names = [f"layer_{i}_weight" for i in range(300)]
    assert all(name in suggest_name(name[:-1], names) for name in names)
