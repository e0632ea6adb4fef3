"""Names and messages with HTML and scripts."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Opener
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.pages.test_markdown import hostile_project

PAYLOADS = (
    *HOSTILE,
    "</script><script>window.harmed = 1</script>",
    "</SCRIPT ><img src=x onerror=window.harmed=1>",
    "<!--<script>",
    "\"><svg onload='window.harmed = 1'>",
    "' autofocus onfocus=window.harmed=1 x='",
    "javascript:window.harmed=1",
    "${window.harmed = 1}` + window.harmed",
    "__proto__",
    "constructor",
)


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_text_runs_or_becomes_an_element(open_page: Opener, text: str) -> None:
    page = open_page(*hostile_project(text))
    shape = "[...document.querySelectorAll('*')].map((each) => each.localName).join(' ')"
    page.locator(".cell.bad").click()
    opened = page.evaluate(shape)
    assert page.locator("#panel h2").inner_text().startswith("alexnet/9/")
    assert "status" in page.locator("#panel").inner_text()
    page.locator(".cell").first.hover()
    assert page.evaluate("window.harmed") is None
    assert not set(opened.split()) & {"img", "iframe", "link", "object", "b", "i"}
    assert opened.split().count("script") == 2
    assert opened.split().count("h1") == 1
    hrefs = page.locator("a").evaluate_all("all => all.map((each) => each.getAttribute('href'))")
    assert set(hrefs) == {"COMPATIBILITY.md", "models/alexnet.md"}


def test_a_payload_is_shown_literally(open_page: Opener) -> None:
    payload = "<img src=x onerror=alert(1)> & \"quotes\" 'too'"
    page = open_page(*hostile_project(payload))
    page.locator(".cell.bad").click()
    assert payload in page.locator("#panel").inner_text()


def test_the_policy_blocks_injected_markup(open_page: Opener) -> None:
    """Injected markup can neither run nor request anything."""
    page = open_page(*hostile_project("plain"))
    page.evaluate("""() => {
        document.body.insertAdjacentHTML("beforeend",
            "<a id=bad onclick='window.harmed = 1'>x</a><img src='https://harm.invalid/x.png'>");
        document.getElementById("bad").click();
        const script = document.createElement("script");
        script.textContent = "window.harmed = 1";
        document.body.append(script);
    }""")
    assert page.evaluate("window.harmed") is None
    page.wait_for_timeout(200)
    for refused in ("inline event handler", "inline script", "harm.invalid"):
        (failure,) = [each for each in open_page.failures if refused in each]
        assert "Content Security Policy" in failure
    open_page.failures.clear()
    open_page.requests.remove("https://harm.invalid/x.png")  # stopped before it left
