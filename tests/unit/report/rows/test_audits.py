"""The audits on a model's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.records.audit import Audit, Survivor, Tally
from exporter.records.baseline import parse_cell
from exporter.report import SavedResults, render_pages
from exporter.report.rows.audits import build_audit_rows, locate_audit, read_audits
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.rendering import Page


def audit(cell: str = "alexnet/17/cpu", *survivors: Survivor) -> Audit:
    return Audit(
        cell=parse_cell(cell),
        seed=0,
        mutants=20,
        tools={"torch": "2.13.0"},
        entry="digest",
        tallies=(
            Tally(kind="edge", caught=9, survived=len(survivors)),
            Tally(kind="weight", caught=5, same=4, within=2),
        ),
        caught_by={"opset": 4, "parity": 10},
        survivors=survivors,
    )


def page(*audits: Audit) -> Page:
    run = make_run(make_record("alexnet/17/cpu"), make_record("alexnet/18/cpu"))
    files = render_pages(
        make_manifest(make_spec()), run, saved=SavedResults(audits={"alexnet": audits})
    )
    return Page.of(files["models/alexnet.md"])


def test_the_page_has_the_counts_of_an_audit() -> None:
    shown = page(audit())
    assert any("<b>Audit</b>" in text for text in shown.html)
    row = ["alexnet/17/cpu", "20", "14", "4", "2", "0", "100.0%", "parity 10, opset 4"]
    assert row in shown.rows


def test_each_survivor_has_a_reason() -> None:
    survivor = Survivor(kind="edge", change="w[7] times 1.1", reason="on index 7: output off")
    shown = page(audit("alexnet/17/cpu", survivor))
    assert ["alexnet/17/cpu", "w[7] times 1.1", "on index 7: output off"] in shown.rows
    assert any("93.3%" in row for row in shown.rows)


def test_names_from_a_file_add_no_structure() -> None:
    evil = Survivor(kind="edge", change="a|b](javascript:x)<img>\n# no", reason="`|`")
    harmless = Survivor(kind="edge", change="abc", reason="x")
    shown = page(audit("alexnet/17/cpu", evil))
    plain = page(audit("alexnet/17/cpu", harmless))
    assert (shown.html, shown.links, shown.headings) == (plain.html, plain.links, plain.headings)


def test_without_an_audit_there_is_no_section() -> None:
    assert "Audit" not in page().headings


def test_an_audit_of_a_removed_cell_is_not_shown() -> None:
    promised = [parse_cell("alexnet/18/cpu")]
    assert build_audit_rows([audit("alexnet/17/cpu")], promised) == ()
    assert len(build_audit_rows([audit("alexnet/18/cpu")], promised)) == 1


def test_audits_are_read_in_the_order_of_their_cells(tmp_path: Path) -> None:
    for cell in ("alexnet/18/cpu", "alexnet/9/cpu"):
        write_text(locate_audit(tmp_path, parse_cell(cell)), audit(cell).to_json())
    audits = read_audits(tmp_path)
    assert [item.cell.opset for item in audits["alexnet"]] == [9, 18]
    assert read_audits(tmp_path / "none") == {}


def test_a_damaged_audit_is_named(tmp_path: Path) -> None:
    write_text(locate_audit(tmp_path, parse_cell("alexnet/18/cpu")), "{}")
    with pytest.raises(ExporterError) as raised:
        read_audits(tmp_path)
    assert raised.value.exit_code is ExitCode.UNREADABLE
    assert "alexnet/18.cpu.json" in str(raised.value)
