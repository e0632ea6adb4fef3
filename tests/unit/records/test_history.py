"""Each accepted change adds one entry to the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.baseline import make_baseline, parse_cell
from exporter.records.history import (
    History,
    OutcomeChange,
    extend_history,
    read_history,
    write_history,
)
from tests.unit.factory import TOOLS, make_record, make_run

OLD = make_baseline(make_run(make_record("a/9/cpu", "error"), make_record("a/10/cpu")))
NEW = make_baseline(make_run(make_record("a/9/cpu"), make_record("b/9/cpu", "xfail")))


def test_the_first_acceptance_changes_nothing() -> None:
    (entry,) = extend_history(History(), None, OLD).entries
    assert entry.counts == {"error": 1, "pass": 1}
    assert entry.tools == TOOLS
    assert entry.changes == ()


def test_every_changed_cell_is_listed() -> None:
    history = extend_history(extend_history(History(), None, OLD), OLD, NEW)
    assert len(history.entries) == 2
    assert history.entries[1].counts == {"pass": 1, "xfail": 1}
    assert history.entries[1].changes == (
        OutcomeChange(cell=parse_cell("a/9/cpu"), before="error at convert", after="pass"),
        OutcomeChange(cell=parse_cell("a/10/cpu"), before="pass", after=""),
        OutcomeChange(cell=parse_cell("b/9/cpu"), before="", after="xfail at convert"),
    )


def test_accepting_equal_results_adds_no_entry() -> None:
    history = extend_history(History(), None, OLD)
    assert extend_history(history, OLD, OLD) is history
    newer = OLD.model_copy(update={"tools": {**TOOLS, "torch": "2.14.0"}})
    assert extend_history(history, OLD, newer).entries[1].changes == ()


def test_a_written_history_is_read_back_with_one_line_per_entry(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    assert read_history(path) == History()
    one = extend_history(History(), None, OLD)
    two = extend_history(one, OLD, NEW)
    write_history(path, one)
    first = path.read_text().splitlines()
    assert read_history(path) == one
    write_history(path, two)
    assert read_history(path) == two
    second = path.read_text().splitlines()
    assert len(second) == len(first) + 1
    unchanged = [line.rstrip(",") for line in second[: len(first) - 2]]
    assert unchanged == [line.rstrip(",") for line in first[:-2]]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "entries": []}', "<<<<<<< HEAD\n{}"])
def test_a_damaged_history_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    with pytest.raises(
        ExporterError, match=r"history\.json: is not a history of format 1"
    ) as caught:
        read_history(path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
