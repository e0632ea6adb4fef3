from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.report.text import number_format as figures


@pytest.mark.parametrize(
    ("value", "text"),
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
def test_sizes(value: int, text: str) -> None:
    assert figures.size(value) == text


def test_counts() -> None:
    assert figures.count(61_100_840) == "61 100 840"
    assert figures.count(7) == "7"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.7e-4, "≤ 1e-3"),
        (2.9e-4, "≤ 1e-3"),
        (1e-3, "≤ 1e-3"),
        (0.5, "≤ 1"),
        (3.7, "≤ 10"),
        (0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_magnitudes(value: float, text: str) -> None:
    assert figures.magnitude(value) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_magnitude_is_an_upper_bound(value: float) -> None:
    bound = float(figures.magnitude(value).removeprefix("≤ "))
    assert value <= bound * (1 + 1e-9)
    assert bound <= value * 10 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "≤ 1% of its limit"),
        (0.07, "≤ 10% of its limit"),
        (0.4, "≤ 50% of its limit"),
        (0.51, "≤ 100% of its limit"),
        (1.0, "≤ 100% of its limit"),
        (3.21, "3.2 times its limit"),
        (math.inf, "inf times its limit"),
        (math.nan, "nan times its limit"),
    ],
)
def test_shares_of_a_limit(value: float, text: str) -> None:
    assert figures.of_limit(value) == text


def test_figures_to_act_on_have_two_digits() -> None:
    assert figures.two_digits(0.00123456) == "0.0012"
    assert figures.two_digits(12) == "12"
    assert figures.two_digits("batch=7") == "batch=7"


def test_messages_lose_what_differs_between_machines() -> None:
    said = figures.message(
        "/home/ci/build/alexnet/18.onnx at 0x7f31aa00:\n"
        " off by 1.23456e-05 (0.012345), torch 2.13.0"
    )
    assert said == "18.onnx at 0x…: off by 1.2e-05 (0.012), torch 2.13.0"


def test_messages_are_cut_and_details_keep_their_lines() -> None:
    assert len(figures.message("x" * 1000)) == 400
    assert figures.detail("a\nb 3.14159265\n") == "a\nb 3.1\n"


SAID = "the runtime fails: FAIL : Non-zero status code returned while running Reshape"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SAID, "as above"),
        (f"cpu on 'nine': wrong: {SAID}", "cpu on 'nine': wrong: as above"),
        (f"{SAID}; fails on two too", "as above; fails on two too"),
        (f"{SAID[:60]}…", "as above"),
        (SAID[:39], SAID[:39]),
        (f"{SAID[:50]} another", f"{SAID[:50]} another"),
        ("off", "off"),
    ],
)
def test_what_was_said_is_not_said_again(text: str, shown: str) -> None:
    assert figures.not_again(text, SAID) == shown


def test_what_was_cut_is_not_said_again() -> None:
    assert figures.not_again(f"wrong: {SAID}", f"{SAID[:60]}…") == f"wrong: as above{SAID[60:]}"
    assert figures.not_again("off", "off") == "off"
