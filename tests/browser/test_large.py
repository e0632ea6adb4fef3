"""Ten thousand cells: rendering and search are fast."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.records.record import Status
from tests.browser.conftest import Opener
from tests.browser.test_matrix import focused, models
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

OPSETS = tuple(range(9, 22))
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


@pytest.fixture
def page(open_page: Opener) -> Any:
    specs = [make_spec(f"model_{number}", opsets=OPSETS) for number in range(770)]
    statuses = [*([Status.PASS] * 8), Status.FAIL, Status.XFAIL]
    records = [
        make_record(
            f"{spec.id}/{opset}/cpu",
            statuses[(opset * 7 + number * 3) % 10],
            message=f"{number} is off",
            detail="line\n" * 30,
        )
        for number, spec in enumerate(specs)
        for opset in spec.opsets
    ]
    return open_page(
        make_manifest(*specs), make_run(*records), viewport={"width": 1400, "height": 900}
    )


def test_the_first_rows_are_visible_in_two_seconds(page: Any) -> None:
    page.wait_for_function(f"({PAINT}) > 0")
    assert page.evaluate(PAINT) < 2000
    assert 13 * 60 <= page.locator(".cell").count() < 13 * 300
    assert page.locator("#shown").inner_text() == "770 of 770 rows, 10010 cells"


def test_rows_are_added_on_scrolling(page: Any) -> None:
    for _ in range(200):
        if page.locator(".matrix tbody tr").count() == 770:
            break
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(20)
    assert models(page)[-1] == "model_769"
    assert page.locator(".cell").count() == 10010


def test_search_and_keys_reach_a_model_at_the_end(page: Any) -> None:
    page.locator(".cell").first.focus()
    for _ in range(76):
        page.keyboard.press("PageDown")
    assert focused(page).startswith("model_760/9/cpu")
    page.keyboard.press("/")
    took = page.evaluate("""() => {
        const field = document.getElementById("search");
        field.value = "model_769";
        const start = performance.now();
        field.dispatchEvent(new Event("input"));
        return performance.now() - start;
    }""")
    assert took < 500
    assert models(page) == ["model_769"]
