"""Suggestions at the end of messages."""

from __future__ import annotations

import pytest

from exporter.core.errors import suggest_name


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
