"""Accepted baselines on the page and in the panel of a cell."""

from __future__ import annotations

from exporter.records.baseline import parse_cell
from exporter.records.history import History, HistoryEntry, OutcomeChange
from tests.browser.conftest import Opener
from tests.browser.test_matrix import MANIFEST, RUN, cell

HISTORY = History(
    entries=(
        HistoryEntry(tools={"torch": "2.12.1", "onnx": "1.23.2"}, counts={"pass": 7, "error": 3}),
        HistoryEntry(
            tools={"torch": "2.13.0", "onnx": "1.23.2"},
            counts={"pass": 9, "error": 1},
            changes=(
                OutcomeChange(
                    cell=parse_cell("alexnet/9/cpu"), before="error at convert", after="pass"
                ),
                OutcomeChange(cell=parse_cell("<b>gone/9/cpu"), before="pass", after=""),
            ),
        ),
    )
)


def test_every_accepted_baseline_is_shown_with_its_changes(open_page: Opener) -> None:
    page = open_page(MANIFEST, RUN, history=HISTORY)
    section = page.get_by_role("region", name="Accepted baselines")
    assert section.locator("summary").all_inner_texts() == [
        "1: 7 pass, 3 error; torch 2.12.1, onnx 1.23.2",
        "2: 9 pass, 1 error; torch 2.12.1 to 2.13.0",
    ]
    section.locator("summary").last.click()
    assert section.locator("details").last.locator("tbody tr").all_inner_texts() == [
        "alexnet/9/cpu\terror at convert\tpass",
        "<b>gone/9/cpu\tpass\tno longer promised",
    ]
    bars = section.locator("svg rect").all()
    heights = [round(float(bar.get_attribute("height"))) for bar in bars]
    assert heights == [70, 0, 0, 30, 90, 0, 0, 10]
    cell(page, "alexnet/9/cpu").click()
    assert "torch 2.12.1 to 2.13.0" in page.locator("#panel").inner_text()
    cell(page, "alexnet/10/cpu").click()
    assert "torch 2.12.1" not in page.locator("#panel").inner_text()


def test_without_a_history_there_is_no_section(open_page: Opener) -> None:
    assert open_page(MANIFEST, RUN).locator("#history").is_hidden()
