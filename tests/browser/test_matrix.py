"""The actions of a user on the page: search, filter, sort, move and open."""

from __future__ import annotations

import time
from typing import Any

import pytest

from exporter.manifest import Manifest
from exporter.records.record import Blame, CheckResult, Culprit, MissingOperator, Status
from exporter.report.formats import LEGEND
from tests.browser.conftest import Opener
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

OPSETS = (9, 10, 18, 19)
MANIFEST: Manifest = make_manifest(
    make_spec("alexnet", opsets=OPSETS, description="AlexNet", tags=("vision",)),
    make_spec("dcgan", opsets=OPSETS, devices=("cpu", "cuda"), tags=("gan",)),
    make_spec("bert", opsets=(18, 19), owner="text"),
)
REFUSED = CheckResult(
    check="parity",
    status=Status.FAIL,
    message="logits is off by 0.5",
    metrics={"max_abs": 0.5, "of_limit": 37.0},
)
RUN = make_run(
    *(
        make_record(
            f"alexnet/{opset}/cpu",
            artifact=make_artifact("alexnet", opset, bytes=1_000_000 * opset),
            checks=(
                CheckResult(
                    check="parity", status=Status.PASS, metrics={"of_limit": 0.004 * opset}
                ),
            ),
        )
        for opset in OPSETS
    ),
    make_record(
        "dcgan/9/cpu",
        "error",
        message="no Foo",
        detail="Traceback\nFooError",
        missing=(MissingOperator(operator="aten::foo", count=2, sources=("net.py:7",)),),
        log="dcgan/logs/9.log",
    ),
    make_record("dcgan/10/cpu", "xfail", message="no Foo", foreseen="too old for it"),
    make_record(
        "dcgan/18/cpu",
        "fail",
        check="parity",
        message="logits is off by 0.5",
        checks=(REFUSED,),
        blame=Blame(culprit=Culprit.KERNEL, sample="image", evidence=("reference agrees",)),
    ),
    make_record("dcgan/18/cuda", "unavailable", message="no GPU here"),
    make_record("bert/18/cpu"),
    make_record("bert/19/cpu"),
)


@pytest.fixture
def page(open_page: Opener) -> Any:
    return open_page(MANIFEST, RUN, viewport={"width": 1400, "height": 900})


def headings(page: Any) -> list[str]:
    return list(page.locator("h2").all_inner_texts())


def models(page: Any) -> list[str]:
    return list(page.locator(".matrix tbody th").all_inner_texts())


def cell(page: Any, key: str) -> Any:
    return page.locator(f'.cell[aria-label^="{key}:"]')


def marks(row: Any) -> list[str]:
    """Return the form and the letter of the mark in each cell of a row."""
    script = "cells => cells.map(c => (c.querySelector('.dot')?.className ?? '') + c.textContent)"
    return [text.removeprefix("dot ") for text in row.locator("td").evaluate_all(script)]


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


def pressed(page: Any, *keys: str) -> str:
    for key in keys:
        page.keyboard.press(key)
    return focused(page)


def test_every_cell_is_in_its_row_and_column(page: Any) -> None:
    assert headings(page) == ["Failures; select one to filter", "On cpu", "On cuda"]
    assert models(page) == ["dcgan", "alexnet", "bert", "dcgan"], "red models are first"
    assert page.locator(".cell").count() == 14
    rows = page.locator(".matrix").first.locator("tbody tr")
    assert marks(rows.nth(0)) == ["badE", "foreseen", "badF", "open.", ""]
    assert marks(rows.nth(1)) == ["good", "good", "good", "good", "9"]
    assert marks(rows.nth(2)) == ["", "", "good", "good", "18"]
    assert "3 models, 2 red; " in page.locator("header").inner_text()
    assert page.locator("#shown").inner_text() == "4 of 4 rows, 14 cells"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("alex", ["alexnet"]),
        ("GAN", ["dcgan", "dcgan"]),
        ("vision", ["alexnet"]),
        ("no gpu", ["dcgan"]),
        ("too old", ["dcgan"]),
        ("kernel", ["dcgan"]),
        ("text", ["bert"]),
        ("dcgan gpu", ["dcgan"]),
        ("nothing like it", []),
    ],
)
def test_the_search_includes_names_tags_and_reasons(page: Any, text: str, rows: list[str]) -> None:
    page.keyboard.press("/")
    page.keyboard.type(text)
    assert page.locator("#search").input_value() == text
    assert models(page) == rows
    text_shown = page.locator("#shown").inner_text()
    assert text_shown.startswith(f"{len(rows)} of 4" if rows else "No row")
    page.keyboard.press("Escape")
    assert len(models(page)) == 4


def test_emojis_are_in_the_legend_only(page: Any) -> None:
    symbols = [mark.symbol for mark in LEGEND]
    cell(page, "dcgan/18/cpu").click()
    assert not [each for each in symbols if each in page.locator("body").inner_text()]
    page.locator("#legend summary").click()
    assert "❌ fail" in page.locator("#legend").inner_text()


def test_marks_and_devices_filter(page: Any) -> None:
    fail = page.locator('[data-mark="fail"]')
    assert fail.inner_text().split() == ["F", "fail", "1"]
    fail.click()
    assert fail.get_attribute("aria-pressed") == "true"
    assert models(page) == ["dcgan"]
    assert page.locator(".cell:not(.dim)").all_inner_texts() == ["F"]
    page.get_by_role("button", name="unavailable").click()
    assert models(page) == ["dcgan", "dcgan"]
    page.get_by_label("Device").select_option("cuda")
    assert headings(page) == ["Failures; select one to filter", "On cuda"]
    fail.click()
    assert models(page) == ["dcgan"]
    page.get_by_label("Device").select_option("cpu")
    assert models(page) == []


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        ("name", ["alexnet", "bert", "dcgan"]),
        ("most red", ["dcgan", "alexnet", "bert"]),
        ("largest error", ["dcgan", "alexnet", "bert"]),
        ("largest file", ["alexnet", "dcgan", "bert"]),
        ("lowest opset", ["alexnet", "bert", "dcgan"]),
        ("as in the manifest", ["alexnet", "dcgan", "bert"]),
    ],
)
def test_rows_are_sorted(page: Any, order: str, rows: list[str]) -> None:
    page.get_by_label("Sort by").select_option(order)
    assert models(page)[:3] == rows


def test_a_cell_opens_with_all_details(page: Any) -> None:
    cell(page, "dcgan/9/cpu").click()
    panel = page.get_by_role("complementary", name="dcgan/9/cpu")
    text_shown = panel.inner_text()
    for text in (
        "error: a stage raised an error",
        "convert",
        "no Foo",
        "aten::foo",
        "net.py:7",
        "Traceback\nFooError",
        "build/dcgan/logs/9.log",
        "exporter export 'dcgan/9/cpu'",
        "exporter repro dcgan/9/cpu",
        "exporter guide E-",
    ):
        assert text in text_shown
    assert "promised at\nmanifests/vision.toml:1\nin the model\nnet.py:7\n" in text_shown
    cell(page, "dcgan/18/cpu").click()
    text_shown = page.locator("#panel").inner_text()
    for text in ("kernel", "reference agrees", "logits is off by 0.5", "max_abs 0.5, of_limit 37"):
        assert text in text_shown
    assert "aten::foo" not in text_shown
    assert page.locator('.cell[aria-expanded="true"]').count() == 1
    page.get_by_role("button", name="Close").click()
    assert page.locator("#panel").is_hidden()
    assert focused(page).startswith("dcgan/18/cpu")


def test_errors_and_sizes_are_drawn(page: Any) -> None:
    cell(page, "alexnet/18/cpu").click()
    errors, sizes = page.locator("#panel svg").all()
    assert errors.get_attribute("aria-label") == (
        "opset 9: at most 10% of its limit, opset 10: at most 10% of its limit, "
        "opset 18: at most 10% of its limit, opset 19: at most 10% of its limit"
    )
    heights = [float(bar.get_attribute("height")) for bar in sizes.locator("rect").all()]
    assert heights == pytest.approx([heights[-1] * opset / 19 for opset in OPSETS])
    assert sizes.get_attribute("aria-label").endswith("opset 19: 19.0 MB")
    cell(page, "dcgan/18/cpu").click()
    errors = page.locator("#panel svg").first
    assert errors.get_attribute("aria-label") == "opset 18: 37 times its limit"
    assert errors.locator("rect.bad").count() == 1
    cell(page, "dcgan/18/cuda").click()
    assert page.locator("#panel svg").count() == 0


def test_keys_move_open_and_close(page: Any) -> None:
    page.locator("body").click()
    cell(page, "dcgan/9/cpu").focus()
    assert pressed(page, "ArrowRight").startswith("dcgan/10/cpu")
    assert pressed(page, "ArrowDown").startswith("alexnet/10/cpu")
    assert pressed(page, "ArrowDown").startswith("bert/18/cpu"), "the nearest cell"
    assert pressed(page, "ArrowDown").startswith("dcgan/18/cuda")
    assert pressed(page, "ArrowDown", "End").startswith("dcgan/19/cuda")
    assert pressed(page, "Home", "PageUp").startswith("dcgan/9/cpu")
    assert pressed(page, "ArrowLeft", "ArrowUp").startswith("dcgan/9/cpu")
    page.keyboard.press("Enter")
    assert page.locator("#panel h2").inner_text() == "dcgan/9/cpu"
    assert page.evaluate("document.activeElement.id") == "panel"
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert focused(page).startswith("dcgan/9/cpu")


def test_tab_reaches_one_cell_of_each_table(page: Any) -> None:
    cell(page, "dcgan/10/cpu").focus()
    assert pressed(page, "ArrowRight").startswith("dcgan/18/cpu")
    assert pressed(page, "Tab").startswith("dcgan/9/cuda")
    assert pressed(page, "Shift+Tab").startswith("dcgan/18/cpu")
    assert page.locator('.cell[tabindex="0"]').count() == 2


def test_the_open_panel_follows_the_keys(page: Any) -> None:
    cell(page, "dcgan/9/cpu").click()
    cell(page, "dcgan/9/cpu").focus()
    pressed(page, "ArrowRight")
    assert page.locator("#panel h2").inner_text() == "dcgan/10/cpu"
    assert "too old for it" in page.locator("#panel").inner_text()


def test_the_tip_shows_the_reason(page: Any) -> None:
    tip = page.get_by_role("tooltip")
    assert tip.is_hidden()
    cell(page, "dcgan/10/cpu").hover()
    assert tip.inner_text() == "dcgan/10/cpu: xfail at convert. too old for it"
    page.locator("h1").hover()
    assert tip.is_hidden()
    cell(page, "alexnet/9/cpu").focus()
    assert pressed(page, "ArrowRight").startswith("alexnet/10")
    assert "all promises are proved" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_an_address_opens_a_cell(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN, "#dcgan/18/cpu")
    assert page.locator("#panel h2").inner_text() == "dcgan/18/cpu"
    page.get_by_role("button", name="Close").click()
    cell(page, "bert/19/cpu").click()
    assert page.evaluate("location.hash") == "#bert/19/cpu"
    page.reload()
    assert page.locator("#panel h2").inner_text() == "bert/19/cpu"

    page.get_by_label("Search models").fill("bert")
    page.locator('[data-mark="pass"]').click()
    page.get_by_label("Device").select_option("cpu")
    page.evaluate("location.hash = '#dcgan/18/cpu'")  # a link, while a search hides the cell
    page.wait_for_selector("#panel h2:has-text('dcgan/18/cpu')")
    assert len(models(page)) == 4
    assert page.locator('[aria-pressed="true"]').count() == 0


def test_a_search_is_in_the_address_and_closes_another_cell(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN, "#q=bert")
    assert page.get_by_label("Search models").input_value() == "bert"
    assert set(models(page)) == {"bert"}
    assert page.locator('[data-mark="fail"]').inner_text().split() == ["F", "fail", "0"]
    cell(page, "bert/19/cpu").click()
    page.get_by_label("Search models").fill("dcgan")
    assert page.locator("#panel").is_hidden()
    assert page.evaluate("location.hash") == "#q=dcgan"
    cell(page, "dcgan/18/cpu").click()
    assert page.locator("#panel dt").first.inner_text() == "message"
    page.get_by_label("Device").select_option("cpu")
    page.get_by_role("button", name="dcgan on all devices").click()
    assert models(page) == ["dcgan", "dcgan"]


@pytest.mark.parametrize("fragment", ["#gone/18/cpu", "#%E0%A4%A", "#<img src=x onerror=alert(1)>"])
def test_an_address_without_a_cell_opens_nothing(open_page: Opener, fragment: str) -> None:
    page = open_page(MANIFEST, RUN, fragment)
    assert page.locator("#panel").is_hidden()
    assert len(models(page)) == 4


def test_the_theme_follows_the_system_until_the_user_chooses(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN, color_scheme="dark")
    shade = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(shade) == "rgb(13, 17, 23)"
    page.emulate_media(color_scheme="light")
    # `wait_for_function` evaluates text in the page, which its policy forbids.
    deadline = time.monotonic() + 10
    while page.evaluate(shade) != "rgb(255, 255, 255)" and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert page.evaluate(shade) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark colors").click()
    page.emulate_media(color_scheme="dark")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(shade) == "rgb(13, 17, 23)"
    page.reload()
    assert page.evaluate(shade) == "rgb(13, 17, 23)"


def test_a_phone_needs_no_horizontal_scrolling(open_page: Opener) -> None:
    many = make_manifest(make_spec("alexnet", opsets=tuple(range(7, 24))))
    page = open_page(many, make_run(), viewport={"width": 360, "height": 740})
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 360
    cell(page, "alexnet/23/cpu").click()
    assert page.evaluate(wide) <= 360
    box = page.locator("#panel").bounding_box()
    assert box["width"] <= 360
    assert box["y"] + box["height"] <= 741


def test_without_javascript_there_is_a_link_to_the_text(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN, java_script_enabled=False)
    assert "COMPATIBILITY.md does not" in page.locator("noscript").inner_text()
    assert page.locator("#controls").is_hidden()


def test_a_cluster_filters_and_the_drawer_hides_no_column(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    shown = page.locator("#tables tbody tr")
    every = shown.count()
    button = page.locator("#clusters button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert 0 < shown.count() < every
    button.click()
    assert shown.count() == every
    page.locator(".cell").first.click()
    panel = page.locator("#panel").bounding_box()
    table = page.locator(".matrix").first.bounding_box()
    assert table["x"] + table["width"] <= 1280
    assert panel["y"] > 900 * 0.45
    assert page.locator(".cell").first.bounding_box()["y"] < panel["y"]
    page.set_viewport_size({"width": 400, "height": 800})
    panel_element = "document.querySelector('#panel')"
    overflow = f"{panel_element}.scrollWidth > {panel_element}.clientWidth"
    assert not page.evaluate(overflow)
