from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.text import (
    format_byte_limit,
    format_bytes,
    format_two_digits,
    join_names,
    pluralize,
    round_up_two_digits,
)


def test_a_count_of_one_has_a_singular_noun() -> None:
    assert [pluralize(count, "cell") for count in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert pluralize(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (2, "w0, w1"), (5, "w0, w1, w2, w3, w4"), (7, "w0, w1, w2, w3, w4 and 2 more")],
)
def test_five_names_are_listed_and_the_others_are_counted(count: int, text: str) -> None:
    assert join_names([f"w{index}" for index in range(count)]) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1234, "1.23 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (244_400_000, "244 MB"),
        (999_600_000, "1.00 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_have_three_significant_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("limit", "text"),
    [(8 << 30, "8GiB"), (500 * 10**6, "500MB"), (3 << 29, "1536MiB"), (1234567890, "1177MiB")],
)
def test_limits_have_the_notation_of_the_manifest(limit: int, text: str) -> None:
    assert format_byte_limit(limit) == text


def test_floats_have_two_significant_digits() -> None:
    assert format_two_digits(0.012345) == "0.012"
    assert format_two_digits(12345) == "12345"
    assert format_two_digits("many") == "many"


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_value_is_never_rounded_down(value: float) -> None:
    assert value <= round_up_two_digits(value) <= value * 1.1
    assert float(f"{round_up_two_digits(value):.2g}") == round_up_two_digits(value)


def test_zero_stays_zero() -> None:
    assert round_up_two_digits(0.0) == 0.0
