"""The CSV table has a line for each promised cell and no formula."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.report_files import escape_formula, render_exports
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "|", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def read(manifest: Manifest, run: RunRecord) -> list[dict[str, str]]:
    text = render_exports(manifest, run)["results.csv"]
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_line_for_each_promised_cell() -> None:
    run = make_run(make_record("net/18/cpu"), make_record("gone/18/cpu"))
    first, second = read(make_manifest(make_spec("net", opsets=(17, 18))), run)
    assert (first["model"], first["opset"], first["status"]) == ("net", "17", "not run")
    assert first["exporter"] == first["bytes"] == ""
    assert second == {
        "model": "net",
        "opset": "18",
        "device": "cpu",
        "status": "pass",
        "stage": "",
        "check": "",
        "exporter": "dynamo",
        "capture": "export",
        "bytes": "1234",
        "nodes": "2",
        "parameters": "30",
        "ir_version": "10",
        "first_onnxruntime": "1.18",
        "message": "",
    }


def test_a_failure_has_stage_and_message() -> None:
    run = make_run(
        make_record("net/17/cpu", "fail", check="parity", message='off, "much"\nand more'),
        make_record("net/18/cpu", "xfail", message="no Foo", foreseen="too old"),
    )
    first, second = read(make_manifest(make_spec("net", opsets=(17, 18))), run)
    assert (first["stage"], first["check"]) == ("parity", "parity")
    assert first["message"] == 'off, "much" and more'
    assert second["message"] == "too old"


@given(
    st.sampled_from(("", " ", "\n", "\x00", "\x1b[31m", "\u202e")),
    st.sampled_from(("", *_FORMULAS)),
    st.text(),
)
def test_any_text_is_one_field_on_one_line(before: str, formula: str, text: str) -> None:
    line = escape_formula(before + formula + text)
    assert not line.startswith(_FORMULAS)
    assert len(line.splitlines()) <= 1


def test_a_plain_text_is_unchanged() -> None:
    assert escape_formula("off by -3 = much") == "off by -3 = much"
