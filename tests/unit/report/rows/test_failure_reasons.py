"""Why a cell does not pass, on its page and on the terminal."""

from __future__ import annotations

import math

import pytest

from exporter.records.record import (
    Blame,
    Culprit,
    Divergence,
    MissingOperator,
    Record,
    Stage,
)
from exporter.report import render_reports
from exporter.report.rows.failure_reasons import first_of, in_short, reasons_of
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.rendering import Page

FIRST = Divergence(
    node="node_linear_5",
    operator="Gemm",
    output="linear_5",
    against="PyTorch",
    error_before=1.1e-7,
    error_after=0.0718,
    source="models/net.py:12",
)
BLAME = Blame(
    culprit=Culprit.EXPORTER, sample="batch=7", evidence=("onnx.reference: wrong",), first=FIRST
)
MISSING = (
    MissingOperator(
        operator="aten::foo", count=4, sources=("a.py:1", "a.py:2", "a.py:3", "a.py:9")
    ),
    MissingOperator(operator="aten::bar", count=1),
)


def wrong() -> Record:
    return make_record("alexnet/17/cpu", "fail", blame=BLAME, check="axes")


def test_the_first_node_is_a_sentence_that_machines_agree_on() -> None:
    told = "against PyTorch, ≤ 1e-6 before it and 0.072 of the scale after it"
    assert first_of(FIRST) == f"Gemm node_linear_5 (models/net.py:12): {told}"
    vague = FIRST.model_copy(update={"suspects": 3, "source": "", "error_before": 0.0})
    assert first_of(vague).startswith("Gemm node_linear_5, or one of the 2 nodes before it: ")
    assert "no error before it" in first_of(vague)
    shapeless = FIRST.model_copy(update={"error_after": math.inf})
    assert first_of(shapeless).endswith("and plainly another result after it")


def test_the_terminal_gets_one_line() -> None:
    assert in_short(wrong()) == "fault: exporter, first at Gemm node_linear_5 (models/net.py:12)"
    lacking = make_record("alexnet/17/cpu", "error", missing=MISSING)
    assert in_short(lacking) == "missing: aten::foo x4, aten::bar x1"
    assert in_short(make_record("alexnet/17/cpu", "error", advice=("write 3",))) == "write 3"
    assert in_short(make_record("alexnet/17/cpu")) == ""


def test_missing_operators_name_a_few_lines() -> None:
    reasons = reasons_of(make_record("alexnet/17/cpu", "error", missing=MISSING))
    assert [(row.operator, row.count, row.sources) for row in reasons.missing] == [
        ("aten::foo", 4, "a.py:1, a.py:2, a.py:3 and 1 more"),
        ("aten::bar", 1, ""),
    ]


@pytest.mark.parametrize(
    ("status", "stage", "shown"),
    [("fail", "parity", True), ("error", "source", False), ("pass", None, False)],
)
def test_a_reproducer_is_offered_where_an_exporter_had_a_part(
    status: str, stage: str | None, shown: bool
) -> None:
    record = make_record("alexnet/17/cpu", status, stage=Stage(stage) if stage else None)
    assert bool(reasons_of(record).reproduce) is shown


def test_the_page_of_the_model_shows_all_of_it() -> None:
    lacking = make_record("alexnet/18/cpu", "error", missing=MISSING, advice=("write 3 there",))
    pages = render_reports(make_manifest(make_spec()), make_run(wrong(), lacking))
    (page,) = [text for name, text in pages.items() if str(name).endswith("alexnet.md")]
    assert "Whose fault: exporter, on the input set `batch=7`" in page
    assert "- first to differ: Gemm node_linear_5 (models/net.py:12): against" in page
    assert "- onnx.reference: wrong" in page
    assert "- in the manifest: write 3 there" in page
    assert "- show it without this tool: `exporter repro alexnet/17/cpu`" in page
    rows = Page.of(page).rows
    assert ["aten::foo", "4", "a.py:1, a.py:2, a.py:3 and 1 more"] in rows
