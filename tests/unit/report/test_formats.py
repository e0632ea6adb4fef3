"""Escaped text, stable figures and status marks."""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from exporter.core.text import join_lines, remove_controls
from exporter.records.record import Status
from exporter.report import formats as figures
from exporter.report.formats import (
    LEGEND,
    MARKS,
    NOT_RUN,
    choose_mark,
    escape_inline,
    format_code,
    format_fence,
    format_sentence,
    join_escaped,
    quote_link_target,
)
from exporter.report.pages.model_page import format_limit_share
from exporter.report.rows.failure_reasons import replace_repetition
from tests.unit.factory import make_record
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

nasty = st.text(
    st.sampled_from("|`*_~[]()<>!#+-=.:;&\\/\"'{}$@ \n\t\r\x00\x1b\x85\u2028\u202ewab19\ud800é✅")
)
texts = nasty | st.text() | st.sampled_from(HOSTILE)


def shown(text: str) -> str:
    return join_lines(text)


@given(texts)
def test_a_cell_shows_the_text_and_nothing_else(text: str) -> None:
    page = Page.of(f"| a | b |\n| --- | --- |\n| {escape_inline(text)} | z |\n")
    assert page.rows == [["a", "b"], [shown(text), "z"]]
    assert not page.links
    assert not page.html


def test_a_long_word_is_escaped_in_linear_time() -> None:
    start = time.process_time()
    assert escape_inline("a" * 40_000) == "a" * 40_000
    assert time.process_time() - start < 5, "some hundredths of a second"


@given(texts)
@example("12.")
@example("7) x")
def test_a_text_on_its_own_line_is_a_paragraph(text: str) -> None:
    page = Page.of(f"before\n\n{escape_inline(text)}\n\nafter\n")
    inside = [shown(text)] if shown(text) else []
    assert page.paragraphs == ["before", *inside, "after"]
    paragraph = ["paragraph_open", "inline", "paragraph_close"]
    assert page.shape == paragraph * (2 + len(inside))


@given(texts)
def test_headings_and_list_items_contain_the_text(text: str) -> None:
    page = Page.of(f"### x {escape_inline(text)}\n\n- y {escape_inline(text)}\n")
    assert page.headings == [f"x {shown(text)}".rstrip()]
    assert page.count("heading_open") == page.count("list_item_open") == 1
    assert not page.links
    assert not page.html


@given(texts)
def test_code_shows_the_text(text: str) -> None:
    page = Page.of(f"| a | b |\n| --- | --- |\n| {format_code(text)} | z |\n")
    assert page.rows[1] == [shown(text.strip()), "z"] or page.rows[1] == [text.strip(), "z"]
    assert not page.links
    assert not page.html


def test_code_is_a_span_if_a_span_can_show_it() -> None:
    assert format_code("nox -s export -- 'alexnet/*'") == "`nox -s export -- 'alexnet/*'`"
    assert format_code("a|b") == "a&#124;b"
    assert format_code("a`b") == "a&#96;b"
    assert format_code("") == ""


@given(texts)
def test_a_fence_contains_every_line(text: str) -> None:
    page = Page.of(f"before\n\n{format_fence(text)}\n\nafter\n")
    assert page.count("fence") == 1
    assert page.shape == [
        *("paragraph_open", "inline", "paragraph_close"),
        "fence",
        *("paragraph_open", "inline", "paragraph_close"),
    ]
    content = next(token.content for token in page.tokens if token.type == "fence")
    lines = remove_controls(text.replace("\r\n", "\n").replace("\r", "\n"))
    assert content.rstrip("\n") == lines.rstrip("\n")


def test_encoded_text_is_not_encoded_again() -> None:
    assert escape_inline(escape_inline("a|b")) == escape_inline("a|b") == Markup("a&#124;b")


def test_plain_names_stay_readable_in_the_source() -> None:
    for name in (
        "vit_tiny",
        "logits",
        "image.0",
        "a/b",
        "dynamo creates opset 18 and later ones",
        "12",
    ):
        assert escape_inline(name) == name


def test_join_encodes_each_item_and_keeps_markup() -> None:
    assert join_escaped([Markup("`x`"), "a|<b>"]) == "`x`, a&#124;&#60;b&#62;"


@given(texts)
def test_a_link_target_is_one_segment(text: str) -> None:
    encoded = quote_link_target(text)
    assert not set(encoded) & set("/()<>[] \n|`\\")
    page = Page.of(f"[x](models/{encoded}.md)\n")
    assert page.links == [f"models/{encoded}.md"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("see #1.", "#1."),
        ("GH-1", "GH-1"),
        ("gh-12 and more", "gh-12"),
        ("owner/name#3 is it", "owner/name#3"),
        ("(@octocat, do it)", "@octocat"),
        ("by a.b@example.org", "a.b@example.org"),
        ("#1`#2", "#1"),
        ("@a|@b", "@a"),
        ("deadbee@1234567", "deadbee@1234567"),
    ],
)
def test_references_and_mentions_are_in_code_spans(text: str, code: str) -> None:
    page = Page.of(f"x {escape_inline(text)}\n")
    assert page.paragraphs == [f"x {text}"]
    spans = [token.content for token in page.tokens if token.type == "code_inline"]
    assert spans[0] == code
    plain = "".join(token.content for token in page.tokens if token.type == "text")
    assert not re.search(r"#\d|@\w|GH-\d", plain, re.IGNORECASE)


def test_other_signs_are_no_reference() -> None:
    for text in ("a @ b", "C# 7", "weigh-1", "x#y", "@", "#"):
        assert "`" not in escape_inline(text)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (figures.format_count, 61_100_840, "61 100 840"),
        (figures.format_count, 7, "7"),
        (figures.format_magnitude, 1.7e-4, "≤ 1e-3"),
        (figures.format_magnitude, 2.9e-4, "≤ 1e-3"),
        (figures.format_magnitude, 1e-3, "≤ 1e-3"),
        (figures.format_magnitude, 0.5, "≤ 1"),
        (figures.format_magnitude, 3.7, "≤ 10"),
        (figures.format_magnitude, 0.0, "0"),
        (figures.format_magnitude, math.inf, "inf"),
        (figures.format_magnitude, math.nan, "nan"),
        (format_limit_share, 0.004, "≤ 1% of its limit"),
        (format_limit_share, 0.07, "≤ 10% of its limit"),
        (format_limit_share, 0.4, "≤ 50% of its limit"),
        (format_limit_share, 0.51, "≤ 100% of its limit"),
        (format_limit_share, 1.0, "≤ 100% of its limit"),
        (format_limit_share, 3.21, "3.2 times its limit"),
        (format_limit_share, math.inf, "inf times its limit"),
        (format_limit_share, math.nan, "nan times its limit"),
    ],
)
def test_counts_magnitudes_and_shares_of_a_limit(
    write: Callable[[Any], str], value: float, text: str
) -> None:
    assert write(value) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_magnitude_is_an_upper_bound(value: float) -> None:
    bound = float(figures.format_magnitude(value).removeprefix("≤ "))
    assert value <= bound * (1 + 1e-9)
    assert bound <= value * 10 * (1 + 1e-9)


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
    assert replace_repetition(text, REPEATED) == shown


def test_repeated_truncated_text_is_removed() -> None:
    assert (
        replace_repetition(f"wrong: {REPEATED}", f"{REPEATED[:60]}…")
        == f"wrong: as above{REPEATED[60:]}"
    )
    assert replace_repetition("off", "off") == "off"


def test_every_status_has_its_own_mark() -> None:
    assert set(MARKS) == set(Status)
    assert len({mark.symbol for mark in LEGEND}) == len({mark.word for mark in LEGEND})
    assert len(LEGEND) == len(Status) + 2
    assert all(MARKS[status].word == status for status in Status)


def test_symbols_are_one_character_of_two_columns() -> None:
    """Columns of a table in the terminal need equal widths."""
    for mark in LEGEND:
        assert unicodedata.east_asian_width(mark.symbol) == "W"


def test_a_cell_without_a_record_is_not_run() -> None:
    assert choose_mark(None) is NOT_RUN
    assert choose_mark(make_record("a/9/cpu", "crash")) is MARKS[Status.CRASH]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `exporter export`, then commit", "run `exporter export`, then commit"),
        ("`a` and `b`", "`a` and `b`"),
        ("one ` backtick", "one &#96; backtick"),
        ("`a|b` has a bar", "&#96;a&#124;b&#96; has a bar"),
        ("`<b>` and <b>", "`<b>` and &#60;b&#62;"),
        ("no code", "no code"),
    ],
)
def test_a_sentence_keeps_its_code(text: str, expected: str) -> None:
    assert format_sentence(text) == expected
