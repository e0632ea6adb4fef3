from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from exporter.core.text import join_lines, remove_controls
from exporter.report.text.markdown import (
    escape_inline,
    format_code,
    format_fence,
    join_escaped,
    quote_link_target,
)
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
