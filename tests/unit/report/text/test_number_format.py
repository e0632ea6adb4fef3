from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.report.text import number_format as figures


def test_counts() -> None:
    assert figures.format_count(61_100_840) == "61 100 840"
    assert figures.format_count(7) == "7"


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
    assert figures.format_magnitude(value) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_magnitude_is_an_upper_bound(value: float) -> None:
    bound = float(figures.format_magnitude(value).removeprefix("≤ "))
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
    assert figures.format_limit_share(value) == text


def test_messages_do_not_depend_on_the_machine() -> None:
    text = figures.clean_message(
        "/home/ci/build/alexnet/18.onnx at 0x7f31aa00:\n"
        " off by 1.23456e-05 (0.012345), torch 2.13.0"
    )
    assert text == "18.onnx at 0x…: off by 1.2e-05 (0.012), torch 2.13.0"


def test_messages_are_truncated_and_details_keep_their_lines() -> None:
    assert len(figures.clean_message("x" * 1000)) == 400
    assert figures.clean_detail("a\nb 3.14159265\n") == "a\nb 3.1\n"


REPEATED = "the runtime fails: FAIL : Non-zero status code returned while running Reshape"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (REPEATED, "as above"),
        (f"cpu on 'nine': wrong: {REPEATED}", "cpu on 'nine': wrong: as above"),
        (f"{REPEATED}; fails on two too", "as above; fails on two too"),
        (f"{REPEATED[:60]}…", "as above"),
        (REPEATED[:39], REPEATED[:39]),
        (f"{REPEATED[:50]} another", f"{REPEATED[:50]} another"),
        ("off", "off"),
    ],
)
def test_repeated_text_is_removed(text: str, shown: str) -> None:
    assert figures.replace_repetition(text, REPEATED) == shown


def test_repeated_truncated_text_is_removed() -> None:
    assert (
        figures.replace_repetition(f"wrong: {REPEATED}", f"{REPEATED[:60]}…")
        == f"wrong: as above{REPEATED[60:]}"
    )
    assert figures.replace_repetition("off", "off") == "off"
