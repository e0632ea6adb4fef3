"""Kept rehearsals are columns beside the current results."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.record import Record, Source, Status
from exporter.records.rehearsal import (
    Rehearsal,
    hash_inputs,
    locate_rehearsal,
    make_rehearsal,
    read_rehearsals,
    write_rehearsal,
)
from exporter.report import render_pages
from exporter.report.rows.cells import collect_cells
from exporter.report.rows.rehearsals import RehearsalTable, build_rehearsal_table
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

CURRENT = make_record("alexnet/17/cpu"), make_record("alexnet/18/cpu")
TOOLS = {"torch": "2.14.1", "onnx": "1.21.0"}
MANIFEST = make_manifest(make_spec())


def rehearse(*records: Record, in_place: tuple[Record, ...] = CURRENT) -> Rehearsal:
    run = make_run(*records, tools=TOOLS)
    return make_rehearsal(["torch==2.14.*"], run, make_run(*in_place).by_cell())


def build(rehearsal: Rehearsal, *current: Record) -> RehearsalTable:
    by_model = collect_cells(MANIFEST, make_run(*current))
    tools = {"torch": "2.13.0", "onnx": "1.21.0"}
    return build_rehearsal_table(by_model, tools, {"new": rehearsal})


def format_rehearsed(table: RehearsalTable) -> str:
    return "; ".join(f"{run.opsets} {run.mark.word}" for run in table.rows[0].rehearsed[0])


def test_the_column_has_the_rehearsed_outcomes_and_the_other_versions() -> None:
    red = make_record("alexnet/18/cpu", Status.FAIL)
    table = build(rehearse(CURRENT[0], red), *CURRENT)
    assert format_rehearsed(table) == "17 pass; 18 fail"
    assert [each.mark.word for each in table.rows[0].current] == ["pass"]
    assert [(each.name, each.tools) for each in table.columns] == [("new", "torch 2.14.1")]


def test_a_changed_source_makes_the_outcome_of_its_cell_unknown() -> None:
    source = Source(file="net.py", state="digest")
    changed = CURRENT[1].model_copy(update={"sources": (source,)})
    assert format_rehearsed(build(rehearse(*CURRENT), CURRENT[0], changed)) == "17 pass; 18 not run"


def test_a_cell_without_a_result_in_place_is_unknown() -> None:
    assert format_rehearsed(build(rehearse(*CURRENT, in_place=()), *CURRENT)) == "17..18 not run"
    assert format_rehearsed(build(rehearse(*CURRENT))) == "17..18 not run"


def test_versions_of_tools_are_no_input() -> None:
    upgraded = CURRENT[0].model_copy(update={"fingerprint": {"tool.torch": "2.14.1"}})
    assert hash_inputs(upgraded) == hash_inputs(CURRENT[0])
    redefined = CURRENT[0].model_copy(update={"fingerprint": {"entry": "2"}})
    assert hash_inputs(redefined) != hash_inputs(CURRENT[0])


def test_the_overview_has_the_table_only_if_a_promised_cell_was_rehearsed() -> None:
    def render(rehearsal: Rehearsal) -> str:
        saved = {"torch2.14": rehearsal}
        return render_pages(MANIFEST, make_run(*CURRENT), rehearsals=saved)["COMPATIBILITY.md"]

    page = render(rehearse(*CURRENT))
    assert "## Rehearsed upgrades" in page
    assert "| model | on | now | torch2.14 |" in page
    assert "Rehearsed" not in render(rehearse(make_record("other/18/cpu")))


def test_a_rehearsal_is_stored_with_a_line_for_each_cell(tmp_path: Path) -> None:
    rehearsal = rehearse(*CURRENT)
    path = write_rehearsal(tmp_path, "new", rehearsal)
    assert sum("alexnet" in line for line in path.read_text().splitlines()) == len(CURRENT)
    assert read_rehearsals(tmp_path) == {"new": rehearsal}


def test_a_damaged_file_is_named_with_the_fix(tmp_path: Path) -> None:
    path = locate_rehearsal(tmp_path, "new")
    path.parent.mkdir()
    path.write_text('{"format": 9}')
    with pytest.raises(ExporterError, match=r"new\.json: .*--keep new` again") as caught:
        read_rehearsals(tmp_path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
