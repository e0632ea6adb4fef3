"""axe-core, a checker of accessibility, reports no problem of the page."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Opener
from tests.browser.test_matrix import MANIFEST, RUN, cell

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="see `nox -s html`")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_is_accessible(open_page: Opener, theme: str, width: int) -> None:
    page = open_page(MANIFEST, RUN, color_scheme=theme, viewport={"width": width, "height": 800})
    closed = axe.Axe().run(page)
    assert not closed.violations_count, closed.generate_report()
    for key in ("dcgan/9/cpu", "dcgan/18/cpu", "alexnet/19/cpu"):
        cell(page, key).evaluate("button => button.click()")  # the panel may cover it
        opened = axe.Axe().run(page)
        assert not opened.violations_count, opened.generate_report()


def test_the_checker_reports_a_missing_label(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN)
    page.evaluate("document.getElementById('search').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('search').removeAttribute('placeholder')")
    assert axe.Axe().run(page).violations_count == 1
