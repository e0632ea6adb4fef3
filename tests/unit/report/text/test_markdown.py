from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from exporter.core.sanitize import one_line, printable
from exporter.report.text.markdown import (
    code,
    fence,
    inline,
    joined,
    target,
    visible,
)
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

nasty = st.text(
    st.sampled_from("|`*_~[]()<>!#+-=.:;&\\/\"'{}$@ \n\t\r\x00\x1b\x85\u2028\u202ewab19\ud800é✅")
)
texts = nasty | st.text() | st.sampled_from(HOSTILE)


def shown(text: str) -> str:
    return visible(one_line(text))


@given(texts)
def test_a_cell_shows_the_text_and_nothing_else(text: str) -> None:
    page = Page.of(f"| a | b |\n| --- | --- |\n| {inline(text)} | z |\n")
    assert page.rows == [["a", "b"], [shown(text), "z"]]
    assert page.count("text") == page.count("inline") - (not shown(text))


@given(texts)
@example("12.")
@example("7) x")
def test_a_line_of_its_own_is_a_paragraph(text: str) -> None:
    page = Page.of(f"before\n\n{inline(text)}\n\nafter\n")
    inside = [shown(text)] if shown(text) else []
    assert [token.content for token in page.tokens if token.type == "text"] == [
        "before",
        *inside,
        "after",
    ]
    paragraph = ["paragraph_open", "inline", "paragraph_close"]
    assert page.shape == paragraph * (2 + len(inside))


@given(texts)
def test_a_heading_and_a_list_item_hold_it(text: str) -> None:
    page = Page.of(f"### x {inline(text)}\n\n- y {inline(text)}\n")
    assert page.headings == [f"x {shown(text)}".rstrip()]
    assert page.count("heading_open") == page.count("list_item_open") == 1
    assert not page.links
    assert not page.html


@given(texts)
def test_code_shows_the_text(text: str) -> None:
    page = Page.of(f"| a | b |\n| --- | --- |\n| {code(text)} | z |\n")
    assert page.rows[1] == [shown(text.strip()), "z"] or page.rows[1] == [text.strip(), "z"]
    assert not page.links
    assert not page.html


def test_code_is_a_span_where_a_span_can_show_it() -> None:
    assert code("nox -s export -- 'alexnet/*'") == "`nox -s export -- 'alexnet/*'`"
    assert code("a|b") == "a&#124;b"
    assert code("a`b") == "a&#96;b"
    assert code("") == ""


@given(texts)
def test_a_fence_holds_every_line(text: str) -> None:
    page = Page.of(f"before\n\n{fence(text)}\n\nafter\n")
    assert page.count("fence") == 1
    assert page.shape == [
        *("paragraph_open", "inline", "paragraph_close"),
        "fence",
        *("paragraph_open", "inline", "paragraph_close"),
    ]
    content = next(token.content for token in page.tokens if token.type == "fence")
    lines = visible(printable(text.replace("\r\n", "\n").replace("\r", "\n")), keep="\n\t")
    assert content.rstrip("\n") == lines.rstrip("\n")


def test_what_was_made_harmless_is_not_touched_again() -> None:
    assert inline(inline("a|b")) == inline("a|b") == Markup("a&#124;b")


def test_plain_names_stay_readable_in_the_source() -> None:
    for name in ("vit_tiny", "logits", "image.0", "a/b", "opset 18 and up are dynamo's own", "12"):
        assert inline(name) == name


def test_join_encodes_each_item_beside_markup() -> None:
    assert joined([Markup("`x`"), "a|<b>"]) == "`x`, a&#124;&#60;b&#62;"


@given(texts)
def test_a_link_target_is_one_segment(text: str) -> None:
    encoded = target(text)
    assert not set(encoded) & set("/()<>[] \n|`\\")
    page = Page.of(f"[x](models/{encoded}.md)\n")
    assert page.links == [f"models/{encoded}.md"]


@pytest.mark.parametrize("text", ["a\u202eb", "a\u200bb", "a\x01b", "a\ud800b"])
def test_what_cannot_be_seen_is_shown_or_dropped(text: str) -> None:
    assert inline(text) in ("ab", "a\ufffdb")
    inline(text).encode()
